"""Checksums of the files of a folder, in its `checksums.json`.

A disk can damage a file without a trace in its size and date. The list has a checksum of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from trellisnet.files import replacing

CHECKSUMS = "checksums.json"


def record(folder: Path, names: Iterable[str]) -> None:
    """Write the checksums of those files of a folder that exist."""
    known = {name: file_hash(folder / name) for name in sorted(names) if (folder / name).is_file()}
    with replacing(folder / CHECKSUMS) as (file,):
        file.write_text(json.dumps({"files": known, "sha256": _hash_of(known)}), encoding="utf-8")


def forget(folder: Path) -> None:
    """Remove the checksums of a folder, whose files are about to change."""
    (folder / CHECKSUMS).unlink(missing_ok=True)


def damage(folder: Path, missing: bool = False) -> str | None:
    """Describe how the files of a folder differ from what was recorded; None if they do not, or are `missing`."""
    try:
        expected = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
        known = expected["files"]
        whole = expected["sha256"] == _hash_of(known)
    except (OSError, ValueError, KeyError, TypeError):
        return f"{CHECKSUMS} is missing or not readable"
    if not whole:
        return f"the checksum of {CHECKSUMS} differs"
    for name, checksum in known.items():
        try:
            if file_hash(folder / name) != checksum:
                return f"the checksum of {name} differs"
        except FileNotFoundError as error:
            if not missing:
                return f"{name}: {error.strerror}"
        except OSError as error:
            return f"{name}: {error.strerror}"
    return None


def check_intact(folder: Path) -> None:
    """Raise a ValueError if a folder has checksums, and a file is not what was recorded.

    Files that are gone are left to their readers: a run without its result can be resumed to write it again.
    """
    if (folder / CHECKSUMS).is_file() and (found := damage(folder, missing=True)) is not None:
        raise ValueError(
            f"{folder} was damaged or changed after it was written: {found}; "
            f"if the change is yours, remove {folder / CHECKSUMS}"
        )


def file_hash(path: Path, start: int = 0, stop: int | None = None) -> str:
    """Return the SHA-256 of a file or of a range of its bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(start)
        left = path.stat().st_size - start if stop is None else stop - start
        while left > 0 and (block := file.read(min(left, 2**20))):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


def _hash_of(known: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
