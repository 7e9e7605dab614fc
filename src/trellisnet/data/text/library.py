"""Python's own library as a character corpus: real text of some megabytes on every machine, without a download."""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trellisnet.core.checks import positive_int
from trellisnet.data.text.characters import CharacterNumbers
from trellisnet.data.text.data import TextData
from trellisnet.data.text.parts import Part
from trellisnet.data.text.tokenise import tokenise

SHARES = 16  # of the modules, one is for validation and one for testing


class AsciiCharacters(CharacterNumbers):
    """Characters of source code; the few that are not printable ASCII become `?`."""

    def __call__(self, block: bytes) -> NDArray[np.uint32]:
        """The numbers of the characters of a text."""
        codes = super().__call__(block)
        printable = ((codes >= ord(" ")) & (codes <= ord("~"))) | (codes == ord("\n"))
        return np.where(printable, codes, np.uint32(ord("?"))).astype(np.uint32)


def load_library(folder: str | Path | None = None, characters: int | None = None) -> TextData:
    """The source of the standard library's top-level modules as characters.

    A module's split depends on its name alone, so that it is the same in every version of Python; the text itself is
    not, so compare bits per character on one machine only.

    Args:
        folder: where the modules are; default those of the running Python.
        characters: only the first so many for training; default all, some millions.
    """
    modules = Path(sysconfig.get_paths()["stdlib"] if folder is None else folder)
    splits: dict[str, list[Part]] = {"train": [], "valid": [], "test": []}
    for file in sorted(modules.glob("*.py")):
        if not file.name.startswith("_sysconfigdata"):  # made when Python is built, different on every machine
            splits[_split_of(file.stem)].append(Part(file))
    vocabulary, ids = tokenise("python-library", splits, "ascii", AsciiCharacters, add_unknown=False)
    if characters is not None:
        ids = {**ids, "train": ids["train"][: positive_int("characters", characters)]}
    return TextData("python-library", vocabulary, ids, "Python's own library; differs from version to version")


def _split_of(module: str) -> str:
    share = int.from_bytes(hashlib.sha256(module.encode()).digest()[:8], "big") % SHARES
    return {0: "valid", 1: "test"}.get(share, "train")
