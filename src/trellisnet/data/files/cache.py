"""A cache of folders. An entry is complete or does not exist, and a damaged one is built again.

The file `checksums.json` of an entry has the SHA-256 of its other files. They are compared whenever the entry is used,
because a disk can damage a file without a trace in its size and date.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from trellisnet.checksums import damage, record
from trellisnet.files import FullDiskError, full_disk, sync

CACHE_VARIABLE = "TRELLISNET_CACHE"


def cache_folder() -> Path:
    """Return `$TRELLISNET_CACHE`, or `trellisnet` in the user's cache folder of the operating system."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    import pooch  # noqa: PLC0415

    return Path(pooch.os_cache("trellisnet"))


def cached(name: str, key: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of a cache entry; build the entry if it does not exist or is damaged.

    One process builds while the others wait. The entry is written under another name, synced, and then renamed, so
    neither a crash nor a full disk leaves an incomplete entry.

    Args:
        name: a readable part of the folder's name.
        key: a hash of everything that the entry depends on.
        build: writes the files of the entry to an empty folder.

    Raises:
        OSError: the cache cannot be written.
    """
    entry = cache_folder() / "entries" / f"{name[:40]}-{key[:20]}"
    if entry.is_dir() and damage(entry) is None:
        return entry
    with locked(entry):
        if entry.is_dir() and (found := damage(entry)) is not None:  # another process may have replaced it
            print(f"the cache entry {entry} is damaged ({found}) and is built again", file=sys.stderr, flush=True)
            _remove(entry)
        if not entry.is_dir():
            _build(entry, build)
    return entry


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock of a file or folder in the cache; its parent is created if necessary.

    Raises:
        OSError: the parent cannot be written.
    """
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise type(error)(
            error.errno,
            f"the cache folder {target.parent} cannot be written ({error.strerror}); "
            f"set ${CACHE_VARIABLE} to a folder that can",
        ) from error
    try:
        yield
    finally:
        lock.release()


def _remove(entry: Path) -> None:
    """Remove an entry; it is renamed first, so that no process finds a part of it."""
    leftover = entry.with_name(f".{entry.name}.tmp-damaged")
    shutil.rmtree(leftover, ignore_errors=True)
    entry.rename(leftover)
    shutil.rmtree(leftover, ignore_errors=True)


def _build(entry: Path, build: Callable[[Path], None]) -> None:
    for leftover in entry.parent.glob(f".{entry.name}.tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)  # of a killed process: a running one would hold the lock
    staging = entry.with_name(f".{entry.name}.tmp-{os.getpid()}")
    try:
        staging.mkdir()
        build(staging)
        record(staging, [path.name for path in staging.iterdir()])
        for path in (*staging.iterdir(), staging):
            sync(path)
        staging.rename(entry)
        sync(entry.parent)
    except OSError as error:
        if error.filename is not None and staging not in (Path(error.filename), *Path(error.filename).parents):
            raise  # an error of an input file, not of the cache
        if (reason := full_disk(error)) is not None:
            advice = f"free some space, or set ${CACHE_VARIABLE} to a folder on another disk"
            raise FullDiskError(f"the cache entry {entry}", reason, advice) from error
        raise type(error)(
            error.errno, f"writing the cache entry {entry} failed ({error.strerror}); nothing is left of it"
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
