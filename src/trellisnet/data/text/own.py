"""The user's own text: a file, or a folder of files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from trellisnet.core.checks import one_of
from trellisnet.data.text.base import Tokeniser
from trellisnet.data.text.bpe import BpeTokeniser
from trellisnet.data.text.characters import CharacterTokeniser
from trellisnet.data.text.data import TextData
from trellisnet.data.text.ranges import FRACTIONS, FileRange, split_file
from trellisnet.data.text.tokenise import tokenise
from trellisnet.data.text.words import WordTokeniser
from trellisnet.vocabulary import KINDS, require_tokenizers

DEFAULT_PIECES = 8192


def load_text(path: str | Path, kind: str = "characters", vocabulary_size: int | None = None) -> TextData:
    """Load a text file or a folder of text files, in UTF-8.

    A file is cut into 90 % for training, 5 % for validation and 5 % for testing, in this order. A folder either has the
    files `train.*`, `valid.*` and `test.*`, or its files are assigned to the splits by a hash of their names.

    Args:
        path: the file or folder; hidden files are ignored.
        kind: "characters", "words" (separated by white space, with `<eos>` at the end of each line) or "bpe" (pieces of
            words that are learned from the training split; needs the extra `text`).
        vocabulary_size: number of tokens of "bpe"; default 8192.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: a split is empty, the text is not UTF-8, or an option is wrong.
    """
    one_of("kind", kind, KINDS)
    if vocabulary_size is not None and kind != "bpe":
        raise ValueError(f"vocabulary_size belongs to kind 'bpe', got {vocabulary_size} and kind {kind!r}")
    path = Path(path).expanduser()
    splits = split_folder(path) if path.is_dir() else _split_single(path)
    make_tokeniser: Callable[[], Tokeniser] = WordTokeniser if kind == "words" else CharacterTokeniser
    scheme = kind
    if kind == "bpe":
        require_tokenizers()
        size = DEFAULT_PIECES if vocabulary_size is None else vocabulary_size
        scheme, make_tokeniser = f"bpe {size}", lambda: BpeTokeniser(splits["train"], size)
    vocabulary, ids = tokenise(path.stem, splits, scheme, make_tokeniser, add_unknown=True)
    return TextData(path.name, vocabulary, ids, f"own text as {kind}")


def split_folder(folder: Path) -> dict[str, list[FileRange]]:
    """Assign the files of a folder to splits.

    Raises:
        ValueError: one of `train.*`, `valid.*` and `test.*` is missing or ambiguous, or there are fewer than 3 files.
    """
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not _is_hidden(file, folder)]
    named = {split: [file for file in files if file.stem == split] for split in FRACTIONS}
    if any(named.values()):
        for split, found in named.items():
            if len(found) != 1:
                raise ValueError(f"{folder}: must have one file {split}.*, got {len(found)}")
        return {split: [FileRange(found[0])] for split, found in named.items()}
    if len(files) < 3:
        raise ValueError(f"{folder}: must have train.*, valid.* and test.*, or at least 3 files, got {len(files)}")
    shuffled = sorted(files, key=lambda file: hashlib.sha256(file.relative_to(folder).as_posix().encode()).digest())
    held_out = max(1, round(len(files) * FRACTIONS["valid"]))
    groups: dict[str, Sequence[Path]] = {
        "train": shuffled[2 * held_out :],
        "valid": shuffled[:held_out],
        "test": shuffled[held_out : 2 * held_out],
    }
    return {split: [FileRange(file) for file in sorted(group)] for split, group in groups.items()}


def _split_single(path: Path) -> dict[str, list[FileRange]]:
    if not path.is_file():
        raise FileNotFoundError(f"path must be a text file or a folder of them, got {str(path)!r}")
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: is empty")
    splits = split_file(path)
    if not all(file_range.size for file_ranges in splits.values() for file_range in file_ranges):
        raise ValueError(f"{path}: too short to be split into training, validation and test text")
    return splits


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)
