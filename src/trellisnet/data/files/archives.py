"""Extract named files from archives."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from trellisnet.files import replacing


def unpack(archive: Path, members: Sequence[str], folder: Path) -> None:
    """Extract `members` of a zip or tar archive into `folder`, each under the last component of its path.

    Nothing else is written, and the paths inside the archive are never used as target paths. So links and `../` in the
    archive are harmless.

    Raises:
        ValueError: the archive is damaged, or a member is missing or not a regular file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                for member in members:
                    with opened.open(member) as stream:
                        _write(stream, folder / PurePosixPath(member).name)
        else:
            with tarfile.open(archive) as tar:
                for member in members:
                    found = tar.getmember(member)
                    content = tar.extractfile(found) if found.isreg() else None  # a link may point anywhere
                    if content is None:
                        raise ValueError(f"{archive}: {member} must be a regular file")
                    with content:
                        _write(content, folder / PurePosixPath(member).name)
    except KeyError as error:
        raise ValueError(f"{archive}: must hold {', '.join(members)}, but: {error.args[0]}") from None
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(f"{archive}: damaged, truncated or no archive: {error}") from error


def _write(stream: IO[bytes], target: Path) -> None:
    with replacing(target) as (temporary,), temporary.open("wb") as file:
        shutil.copyfileobj(stream, file, 2**20)
