import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """Every test has its own cache, and finds only the data that it creates."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TRELLISNET_CACHE", str(folder))
    monkeypatch.delenv("TRELLISNET_DATA", raising=False)
    return folder


class Server:
    """A real HTTP server. `files` are its contents by name; `broken` lists the faults of the first answers per file."""

    def __init__(self):
        self.files, self.broken, self.asked = {}, {}, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.lstrip("/")
                outer.asked.append(name)
                faults = outer.broken.get(name, [])
                fault = faults.pop(0) if faults else None
                if name not in outer.files or fault == "missing":
                    self.send_error(404)
                    return
                if fault == "busy":
                    self.send_error(503)
                    return
                content = outer.files[name]
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if fault == "truncated":
                    content = content[: len(content) // 2]
                elif fault == "corrupt":
                    content = bytes(len(content))
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("trellisnet.data.files.download.time.sleep", lambda _: None)
    server = Server()
    yield server
    server.close()


@pytest.fixture
def gz():
    return lambda content: gzip.compress(content, mtime=0)
