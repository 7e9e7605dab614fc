"""The user's own text: a file, or a folder of files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from trellisnet.core.checks import one_of
from trellisnet.data.text.bpe import BpeNumbers
from trellisnet.data.text.characters import CharacterNumbers
from trellisnet.data.text.data import TextData
from trellisnet.data.text.numbers import Numbers
from trellisnet.data.text.parts import FRACTIONS, Part, split_file
from trellisnet.data.text.tokenise import tokenise
from trellisnet.data.text.words import WordNumbers
from trellisnet.vocabulary import KINDS, require_tokenizers

DEFAULT_PIECES = 8192


def load_text(path: str | Path, kind: str = "characters", vocabulary_size: int | None = None) -> TextData:
    """A text file or a folder of text files, in UTF-8.

    A file is cut into 90 % for training, 5 % for validation and 5 % for testing, in this order. A folder either has the
    files `train.*`, `valid.*` and `test.*`, or its files are dealt out to the splits whole, by a hash of their names.

    Args:
        path: of the file or folder; hidden files are left out.
        kind: "characters", "words" (what stands between blanks, and `<eos>` at line ends) or "bpe" (pieces of words
            that are learned from the training split; needs the extra `text`).
        vocabulary_size: of "bpe"; default 8192.
    """
    one_of("kind", kind, KINDS)
    if vocabulary_size is not None and kind != "bpe":
        raise ValueError(f"vocabulary_size belongs to kind 'bpe', got {vocabulary_size} and kind {kind!r}")
    path = Path(path).expanduser()
    splits = split_folder(path) if path.is_dir() else _split_single(path)
    make_numbers: Callable[[], Numbers] = WordNumbers if kind == "words" else CharacterNumbers
    scheme = kind
    if kind == "bpe":
        require_tokenizers()
        size = DEFAULT_PIECES if vocabulary_size is None else vocabulary_size
        scheme, make_numbers = f"bpe {size}", lambda: BpeNumbers(splits["train"], size)
    vocabulary, ids = tokenise(path.stem, splits, scheme, make_numbers, add_unknown=True)
    return TextData(path.name, vocabulary, ids, f"own text as {kind}")


def split_folder(folder: Path) -> dict[str, list[Part]]:
    """The files of a folder by split."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not _is_hidden(file, folder)]
    named = {split: [file for file in files if file.stem == split] for split in FRACTIONS}
    if any(named.values()):
        for split, found in named.items():
            if len(found) != 1:
                raise ValueError(f"{folder}: must have one file {split}.*, got {len(found)}")
        return {split: [Part(found[0])] for split, found in named.items()}
    if len(files) < 3:
        raise ValueError(f"{folder}: must have train.*, valid.* and test.*, or at least 3 files, got {len(files)}")
    dealt = sorted(files, key=lambda file: hashlib.sha256(file.relative_to(folder).as_posix().encode()).digest())
    few = max(1, round(len(files) * FRACTIONS["valid"]))
    groups: dict[str, Sequence[Path]] = {
        "train": dealt[2 * few :],
        "valid": dealt[:few],
        "test": dealt[few : 2 * few],
    }
    return {split: [Part(file) for file in sorted(group)] for split, group in groups.items()}


def _split_single(path: Path) -> dict[str, list[Part]]:
    if not path.is_file():
        raise FileNotFoundError(f"path must be a text file or a folder of them, got {str(path)!r}")
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: is empty")
    splits = split_file(path)
    if not all(part.size for parts in splits.values() for part in parts):
        raise ValueError(f"{path}: too short to be split into training, validation and test text")
    return splits


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)
