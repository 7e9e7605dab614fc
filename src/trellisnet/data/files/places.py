"""Find the files of a dataset: in the user's folders, in the cache, or on a server."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trellisnet.checksums import CHECKSUMS, damage, record
from trellisnet.data.files.archives import unpack
from trellisnet.data.files.cache import cache_folder, locked
from trellisnet.data.files.download import Download, DownloadError, check, fetch

DATA_VARIABLE = "TRELLISNET_DATA"


@dataclass(frozen=True)
class Source:
    """The files of a dataset in one form, and their downloads.

    Attributes:
        folders: possible names of the folder of the files, the usual one first.
        files: names of the files.
        downloads: the files themselves, or archives that contain them.
        may_be_gzipped: each file is also accepted as `.gz`.
        origin: for files without a download: what to look for.
    """

    folders: tuple[str, ...]
    files: tuple[str, ...]
    downloads: tuple[Download, ...]
    may_be_gzipped: bool = False
    origin: str = ""


class MissingDataError(FileNotFoundError):
    """A dataset is in none of the places searched and cannot be downloaded."""


def search_places(root: str | Path | None) -> list[Path]:
    """Return the folders to search for datasets: `root`, `$TRELLISNET_DATA`, and the downloads in the cache.

    Raises:
        NotADirectoryError: one of the first two is not a folder.
    """
    places = []
    for given, value in (("root", root), (f"${DATA_VARIABLE}", os.environ.get(DATA_VARIABLE))):
        if value:
            place = Path(value).expanduser()
            if not place.is_dir():
                raise NotADirectoryError(f"{given} must be a folder, got {str(value)!r}")
            places.append(place)
    return [*places, _downloads()]


def find(sources: Sequence[Source], root: str | Path | None = None) -> tuple[Source, dict[str, Path]]:
    """Find or download the files of a dataset, which may exist in several forms.

    Args:
        sources: the forms, the preferred one first; that one is downloaded if none is found.
        root: a folder to search first.

    Returns:
        The form that was found, and the path of each of its files.

    Raises:
        MissingDataError: the message lists the files, their downloads and the searched folders.
    """
    places = search_places(root)
    for place in places:
        for source in sources:
            if (files := _files_in(place, source)) and not (place == _downloads() and _removed_if_damaged(source)):
                return source, files
    for place in places:
        for source in sources:
            if files := _unpacked(place, source):
                return source, files
    try:
        return sources[0], _downloaded(sources[0])
    except DownloadError as error:
        raise MissingDataError(_wanted(sources, places, error)) from error


def _downloads() -> Path:
    return cache_folder() / "downloads"


def _files_in(place: Path, source: Source) -> dict[str, Path] | None:
    for folder in (*(place / name for name in source.folders), place):
        paths = {
            name: path
            for name in source.files
            for path in (folder / f"{name}.gz", folder / name)  # the plain file wins if both exist
            if path.is_file() and (path.suffix != ".gz" or source.may_be_gzipped)
        }
        if len(paths) == len(source.files):
            return paths
    return None


def _unpacked(place: Path, source: Source) -> dict[str, Path] | None:
    """Unpack the user's archive, if `place` has it, into the cache; the user's folder is not changed."""
    archives = [download for download in source.downloads if download.members]
    for folder in (*(place / name for name in source.folders), place):
        paths = [folder / archive.name for archive in archives]
        if paths and all(path.is_file() for path in paths):
            target = _downloads() / source.folders[0]
            with locked(target):
                for path, archive in zip(paths, archives, strict=True):
                    check(path, archive.checksum)
                    unpack(path, archive.members, target)
                record(target, [path.name for path in target.iterdir()])
            return _files_in(_downloads(), source)
    return None


def _downloaded(source: Source) -> dict[str, Path]:
    if not source.downloads:
        raise DownloadError(f"no server is known, look for {source.origin}")
    target = _downloads() / source.folders[0]
    with locked(target):
        if files := _files_in(_downloads(), source):  # another process was faster
            return files
        for download in source.downloads:
            path = fetch(download, target)
            if download.members:
                unpack(path, download.members, target)
                path.unlink()
        record(target, [path.name for path in target.iterdir()])
    files = _files_in(_downloads(), source)
    assert files, f"the downloads of {source.folders[0]} do not hold all of its files"
    return files


def _removed_if_damaged(source: Source) -> bool:
    """Remove the downloads of a source if they are not what was downloaded any more; they are then fetched again."""
    target = _downloads() / source.folders[0]
    if not (target / CHECKSUMS).is_file() or damage(target) is None:
        return False
    with locked(target):
        if target.is_dir() and (found := damage(target)) is not None:  # another process may have fetched it again
            print(f"{target} is damaged ({found}) and is fetched again", file=sys.stderr, flush=True)
            shutil.rmtree(target)
    return True


def _wanted(sources: Sequence[Source], places: Sequence[Path], error: DownloadError) -> str:
    lines = [f"{sources[0].folders[0]}: not found, and not downloaded: {error}"]
    for source in sources:
        lines.append(f"wanted in a folder {source.folders[0]!r}: {', '.join(source.files)}")
        for download in source.downloads:
            what = f"{download.name}, which holds them," if download.members else download.name
            lines.append(f"  {what} can be had from {' or '.join(download.urls)} ({download.checksum})")
    lines.append(f"searched: {', '.join(map(str, places))}")
    for source in sources:
        for folder in (place / name for place in places for name in (*source.folders, ".")):
            there = [name for name in source.files if (folder / name).is_file()]
            if there:
                lines.append(f"{folder} has {', '.join(there)}, but not the rest")
    lines.append(f"put them into one of these, or say where they are with root (--data.root) or ${DATA_VARIABLE}")
    return "\n".join(lines)
