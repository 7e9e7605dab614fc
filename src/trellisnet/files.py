"""Files that are either the old ones or the new ones, never half of each."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEMPORARY = ".tmp"


@contextmanager
def replacing(*paths: Path) -> Iterator[list[Path]]:
    """Give temporary names to write to; if all goes well they are synced and take the places of `paths`, in order.

    All are complete on the disk before the first is renamed. If the writing fails, nothing of `paths` has been touched;
    the temporary files are gone in any case.
    """
    temporary: list[Path] = []
    try:
        for path in paths:
            file = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
            file.open("xb").close()
            temporary.append(file)
        rights = [file.stat().st_mode for file in temporary]
        yield temporary
        for file, mode in zip(temporary, rights, strict=True):
            file.chmod(mode)  # who wrote it may have made a new file that only its owner can read
            with file.open("rb+") as opened:
                os.fsync(opened.fileno())
        for file, path in zip(temporary, paths, strict=True):
            file.replace(path)
        for folder in {path.parent for path in paths}:
            _sync_folder(folder)
    finally:
        for file in temporary:
            file.unlink(missing_ok=True)


def remove_leftovers(*folders: Path) -> None:
    """Remove what killed programs left of `replacing` in folders that nobody else writes into now."""
    for folder in folders:
        for file in folder.glob(f".*{TEMPORARY}"):
            file.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the renaming itself last, where the system has a way to ask for it."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
