"""Replace files atomically: a reader finds the old files or complete new ones, also if the disk is full."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEMPORARY = ".tmp"
FULL = (errno.ENOSPC, errno.EFBIG, *([errno.EDQUOT] if hasattr(errno, "EDQUOT") else []))


class FullDiskError(OSError):
    """A file could not be written because there is no space for it; an earlier file of that name is intact."""

    def __init__(
        self, path: Path | str, reason: str, advice: str = "free some space and run the command again"
    ) -> None:
        super().__init__(f"{path} cannot be written: {reason}; what was there before is intact: {advice}")
        self.errno, self.path, self.reason = errno.ENOSPC, path, reason


@contextmanager
def noticing_full_disk(path: Path) -> Iterator[None]:
    """Replace the errors of a full disk, of any library, by a FullDiskError that names the file."""
    try:
        yield
    except FullDiskError:
        raise
    except Exception as error:
        reason = full_disk(error)
        if reason is None:
            raise
        raise FullDiskError(path, reason) from error


def full_disk(error: Exception) -> str | None:
    """The system's message if the error is that of a full disk, a quota or a limit of the file's size; else None."""
    if isinstance(error, OSError) and error.errno in FULL:
        return os.strerror(error.errno)
    told = next((number for number in FULL if os.strerror(number) in str(error)), None)  # safetensors has own errors
    return None if told is None else os.strerror(told)


@contextmanager
def replacing(*paths: Path) -> Iterator[list[Path]]:
    """Yield temporary files to write to, one per path; on success, sync them and rename them to `paths`, in order.

    All files are complete on the disk before the first is renamed. If writing fails, no file of `paths` is changed. The
    temporary files are removed in both cases.

    Raises:
        FullDiskError: there is no space for the files.
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
    except Exception as error:
        if isinstance(error, FullDiskError) or (reason := full_disk(error)) is None:
            raise
        raise FullDiskError(paths[0], reason) from error
    finally:
        for file in temporary:
            file.unlink(missing_ok=True)


def append(path: Path, text: str) -> None:
    """Add text to the end of a file. If that fails, the file is as before.

    Raises:
        FullDiskError: there is no space for the text.
    """
    content = text.encode()
    with noticing_full_disk(path), path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            while content:  # a part of it may fit
                content = content[file.write(content) :]
        except OSError:
            file.truncate(before)
            raise


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
