"""The source of Python's standard library as a character corpus: some megabytes of text, without a download."""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trellisnet.core.checks import positive_int
from trellisnet.data.text.characters import CharacterTokeniser
from trellisnet.data.text.data import TextData
from trellisnet.data.text.ranges import FileRange
from trellisnet.data.text.tokenise import tokenise

SHARES = 16  # one share of the modules is for validation and one for testing


class AsciiCharacters(CharacterTokeniser):
    """The characters of source code; a character that is not printable ASCII becomes `?`."""

    def __call__(self, block: bytes) -> NDArray[np.uint32]:
        """Return the code points of a block of text."""
        codes = super().__call__(block)
        printable = ((codes >= ord(" ")) & (codes <= ord("~"))) | (codes == ord("\n"))
        return np.where(printable, codes, np.uint32(ord("?"))).astype(np.uint32)


def load_library(folder: str | Path | None = None, characters: int | None = None) -> TextData:
    """Load the source of the standard library's top-level modules as characters.

    The split of a module depends on its name only, so it is the same in every version of Python. The text differs
    between versions, so compare bits per character on one machine only.

    Args:
        folder: the folder of the modules; default that of the running Python.
        characters: use the first n characters of the training split only; default all, some millions.
    """
    modules = Path(sysconfig.get_paths()["stdlib"] if folder is None else folder)
    splits: dict[str, list[FileRange]] = {"train": [], "valid": [], "test": []}
    for file in sorted(modules.glob("*.py")):
        if not file.name.startswith("_sysconfigdata"):  # generated when Python is built, so it differs between machines
            splits[_split_of(file.stem)].append(FileRange(file))
    vocabulary, ids = tokenise("python-library", splits, "ascii", AsciiCharacters, add_unknown=False)
    if characters is not None:
        ids = {**ids, "train": ids["train"][: positive_int("characters", characters)]}
    return TextData("python-library", vocabulary, ids, "Python's own library; differs from version to version")


def _split_of(module: str) -> str:
    share = int.from_bytes(hashlib.sha256(module.encode()).digest()[:8], "big") % SHARES
    return {0: "valid", 1: "test"}.get(share, "train")
