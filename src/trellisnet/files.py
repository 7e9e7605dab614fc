"""Replace files atomically: a reader finds the old files or complete new ones."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEMPORARY = ".tmp"


@contextmanager
def replacing(*paths: Path) -> Iterator[list[Path]]:
    """Yield temporary files to write to, one per path; on success, sync them and rename them to `paths`, in order.

    All files are complete on the disk before the first is renamed. If writing fails, no file of `paths` is changed. The
    temporary files are removed in both cases.
    """
    temporary: list[Path] = []
    try:
        for path in paths:
            file = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
            file.open("xb").close()
            temporary.append(file)
        modes = [file.stat().st_mode for file in temporary]
        yield temporary
        for file, mode in zip(temporary, modes, strict=True):
            file.chmod(mode)  # the writer may have made a new file that only its owner can read
            sync(file)
        for file, path in zip(temporary, paths, strict=True):
            file.replace(path)
        for folder in {path.parent for path in paths}:
            sync(folder)
    finally:
        for file in temporary:
            file.unlink(missing_ok=True)


def remove_leftovers(*folders: Path) -> None:
    """Remove the temporary files of killed programs. No other program may be writing to these folders."""
    for folder in folders:
        for file in folder.glob(f".*{TEMPORARY}"):
            file.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Write the content of a file, or the entries of a folder, to the disk, so that it survives a power failure."""
    if path.is_dir() and os.name != "posix":
        return  # other systems cannot sync a folder
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
