"""Download files, with checksums, mirrors and retries."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellisnet.data.files.progress import progress

ROUNDS = 3  # over all mirrors, with a pause between them
TIMEOUT = 30.0  # seconds without data
AGENT = "Mozilla/5.0 (compatible; trellisnet)"  # some servers refuse the default agent of Python libraries


@dataclass(frozen=True)
class Download:
    """A file on one or several servers.

    Attributes:
        name: the file's name.
        urls: its mirrors, the preferred one first.
        checksum: `md5:...` or `sha256:...`.
        members: for an archive: the paths of the required files inside it.
    """

    name: str
    urls: tuple[str, ...]
    checksum: str
    members: tuple[str, ...] = ()


class DownloadError(OSError):
    """No mirror delivered the right file."""


def fetch(download: Download, folder: Path, pause: float = 1.0) -> Path:
    """Download a file to `folder`. It appears there when it is complete and its checksum is right.

    Every round tries all mirrors, so a broken mirror costs one attempt per round. A mirror that answers with a client
    error, for example 404, is not tried again.

    Raises:
        DownloadError: no mirror delivered the right file.
        OSError: the file cannot be saved.
    """
    import pooch  # noqa: PLC0415
    import requests  # noqa: PLC0415

    pooch.get_logger().setLevel(logging.WARNING)
    failures: dict[str, str] = {}
    mirrors = list(download.urls)
    for attempt in range(ROUNDS):
        if attempt and mirrors:
            time.sleep(pause * attempt)
        for url in list(mirrors):
            with progress(f"downloading {download.name}", unit="bytes") as bar:
                downloader = pooch.HTTPDownloader(
                    progressbar=_PoochBar(bar), chunk_size=2**16, timeout=TIMEOUT, headers={"User-Agent": AGENT}
                )
                try:
                    return Path(pooch.retrieve(url, download.checksum, download.name, folder, downloader=downloader))
                except requests.exceptions.HTTPError as error:
                    failures[url] = str(error)
                    if error.response is not None and 400 <= error.response.status_code < 500:
                        mirrors.remove(url)
                except requests.exceptions.RequestException as error:
                    failures[url] = f"{type(error).__name__}: {error}"
                except OSError as error:
                    raise OSError(error.errno, f"{download.name} cannot be saved in {folder}: {error}") from error
                except ValueError:  # pooch's error for a wrong checksum
                    failures[url] = f"the file is not the expected one ({download.checksum})"
    reasons = "; ".join(f"{url}: {reason}" for url, reason in failures.items())
    raise DownloadError(f"no mirror gave {download.name}: {reasons}")


def check(path: Path, checksum: str) -> None:
    """Check that an existing file is the one that would be downloaded.

    Raises:
        ValueError: its checksum is another.
    """
    import pooch  # noqa: PLC0415

    kind, expected = checksum.split(":")
    found = pooch.file_hash(path, alg=kind)
    if found != expected:
        raise ValueError(
            f"{path}: not the file that is downloaded under this name: {kind} must be {expected}, got {found}"
        )


class _PoochBar:
    """Adapts a `Bar` to the interface that pooch expects of a progress bar."""

    def __init__(self, bar: Any) -> None:
        self.bar, self._total = bar, 0

    @property
    def total(self) -> int:
        return self._total

    @total.setter
    def total(self, value: int) -> None:
        self._total = value
        self.bar.set_total(value)

    def update(self, amount: int) -> None:
        self.bar.add(amount)

    def reset(self) -> None:
        self.bar.restart()

    def close(self) -> None:
        """Do nothing: the bar closes with its context."""
