import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile

import pytest

from trellisnet.data.files.download import Download, DownloadError, fetch
from trellisnet.data.files.places import MissingDataError, Source, find

TEXT = b"some text\n" * 1000


def sha(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def source(server):
    server.files["a.txt"] = TEXT
    return Source(("things",), ("a.txt",), (Download("a.txt", (f"{server.url}/a.txt",), sha(TEXT)),), True)


def snapshot(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("place", ["things/a.txt", "a.txt", "things/a.txt.gz"])
def test_files_are_found_in_root(source, server, tmp_path, place):
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(TEXT)
    assert find([source], tmp_path) == (source, {"a.txt": path})
    assert not server.asked


def test_root_precedes_the_variable_which_precedes_the_cache(source, tmp_path, monkeypatch, cache):
    places = {name: tmp_path / name for name in ("root", "variable")}
    monkeypatch.setenv("TRELLISNET_DATA", str(places["variable"]))
    for place in (*places.values(), cache / "downloads" / "things"):
        place.mkdir(parents=True)
        (place / "a.txt").write_bytes(TEXT)
    assert find([source], places["root"])[1]["a.txt"].parent == places["root"]
    assert find([source])[1]["a.txt"].parent == places["variable"]
    monkeypatch.delenv("TRELLISNET_DATA")
    assert find([source])[1]["a.txt"].parent == cache / "downloads" / "things"


def test_missing_files_are_downloaded_once(source, server, cache):
    path = find([source])[1]["a.txt"]
    assert path == cache / "downloads" / "things" / "a.txt"
    assert path.read_bytes() == TEXT
    assert find([source])[1]["a.txt"] == path
    assert server.asked == ["a.txt"]


def test_a_damaged_download_is_fetched_again(source, server, capsys):
    path = find([source])[1]["a.txt"]
    path.write_bytes(TEXT[:-1] + b"?")
    assert find([source])[1]["a.txt"].read_bytes() == TEXT
    assert server.asked == ["a.txt"] * 2
    said = capsys.readouterr().err
    assert f"{path.parent} is damaged (the checksum of a.txt differs) and is fetched again" in said
    server.broken["a.txt"] = ["missing"] * 10
    path.write_bytes(TEXT[:-1] + b"?")
    with pytest.raises(MissingDataError, match="things: not found"):
        find([source])


@pytest.mark.parametrize("fault", ["truncated", "corrupt", "busy"])
def test_a_failed_download_is_retried(source, server, fault):
    server.broken["a.txt"] = [fault, fault]
    assert find([source])[1]["a.txt"].read_bytes() == TEXT
    assert server.asked == ["a.txt"] * 3


@pytest.mark.parametrize("fault", ["truncated", "corrupt", "busy", "missing"])
def test_a_download_that_keeps_failing_is_an_error_with_all_details(source, server, cache, tmp_path, fault):
    server.broken["a.txt"] = [fault] * 10
    with pytest.raises(MissingDataError) as caught:
        find([source], tmp_path)
    message = str(caught.value)
    for part in (
        "a.txt",
        "'things'",
        server.url,
        sha(TEXT),
        str(tmp_path),
        str(cache),
        "$TRELLISNET_DATA",
        "--data.root",
    ):
        assert part in message
    assert not [path for path in (cache / "downloads").rglob("*") if path.is_file() and not path.name.endswith(".lock")]
    assert len(server.asked) == (1 if fault == "missing" else 3)


def test_a_mirror_takes_over(server, tmp_path):
    server.files["mirror/a.txt"] = TEXT
    server.files["a.txt"] = TEXT
    server.broken["a.txt"] = ["corrupt"]
    urls = (f"{server.url}/nothing", f"{server.url}/a.txt", f"{server.url}/mirror/a.txt")
    assert fetch(Download("a.txt", urls, sha(TEXT)), tmp_path).read_bytes() == TEXT
    assert server.asked == ["nothing", "a.txt", "mirror/a.txt"]


def test_a_server_that_does_not_answer_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("trellisnet.data.files.download.time.sleep", lambda _: None)
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1:9.*Connection"):
        fetch(Download("a.txt", ("http://127.0.0.1:9/a.txt",), sha(TEXT)), tmp_path)


def archive_of(kind, names):
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as archive:
            for name in names:
                archive.writestr(name, TEXT)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size = len(TEXT)
                archive.addfile(member, io.BytesIO(TEXT))
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_an_archive_is_downloaded_and_unpacked(server, kind, cache):
    content = archive_of(kind, ["x/a.txt", "x/b.txt", "../../evil.txt", "/evil.txt"])
    server.files["x.pack"] = content
    download = Download("x.pack", (f"{server.url}/x.pack",), sha(content), ("x/a.txt", "x/b.txt"))
    files = find([Source(("x",), ("a.txt", "b.txt"), (download,))])[1]
    assert [path.read_bytes() for path in files.values()] == [TEXT, TEXT]
    assert not list(cache.parent.rglob("evil.txt"))
    assert not list(cache.rglob("x.pack")), "the archive is no longer needed"


def test_an_archive_of_the_user_is_unpacked_into_the_cache(server, tmp_path):
    content = archive_of("zip", ["x/a.txt"])
    (tmp_path / "x.zip").write_bytes(content)
    download = Download("x.zip", (f"{server.url}/x.zip",), sha(content), ("x/a.txt",))
    before = snapshot(tmp_path)
    files = find([Source(("x",), ("a.txt",), (download,))], tmp_path)[1]
    assert files["a.txt"].read_bytes() == TEXT
    assert snapshot(tmp_path) == before
    assert not server.asked


def test_errors_name_a_damaged_archive_of_the_user(server, tmp_path, cache):
    (tmp_path / "x.zip").write_bytes(archive_of("zip", ["x/a.txt"])[:100])
    source = Source(("x",), ("a.txt",), (Download("x.zip", (server.url,), sha(b""), ("x/a.txt",)),))
    with pytest.raises(ValueError, match=r"x\.zip: not the file that is downloaded under this name: sha256 must be "):
        find([source], tmp_path)
    assert not list(cache.rglob("a.txt"))


def test_errors_name_an_incomplete_set_of_files(server, tmp_path):
    source = Source(("x",), ("a.txt", "b.txt"), (Download("a.txt", (f"{server.url}/a.txt",), sha(TEXT)),))
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.txt").touch()
    with pytest.raises(MissingDataError, match=r"/x has a\.txt, but not the rest"):
        find([source], tmp_path)


def test_a_root_that_is_not_a_folder_is_an_error(source, tmp_path, monkeypatch):
    with pytest.raises(NotADirectoryError, match=r"root must be a folder, got .*nowhere"):
        find([source], tmp_path / "nowhere")
    monkeypatch.setenv("TRELLISNET_DATA", "/nowhere")
    with pytest.raises(NotADirectoryError, match=r"\$TRELLISNET_DATA must be a folder, got '/nowhere'"):
        find([source])


def test_importing_is_light():
    heavy = "{'pooch', 'rich', 'pyarrow', 'tokenizers', 'requests'}"
    code = f"import sys, trellisnet, trellisnet.data; print({heavy} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == "set()"
