"""Read parallel text, and convert it to token ids."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from trellisnet.core.checks import boolean, one_of, positive_int
from trellisnet.data.checks import check_file
from trellisnet.data.text.bpe import learn_pieces
from trellisnet.data.translation.data import PairData, PairItems
from trellisnet.vocabulary import END_OF_LINE, KINDS, UNKNOWN, WORD, Vocabulary

Pairs = list[tuple[str, str]]
PIECES = 8000  # default size of a vocabulary of pieces


def read_pairs(source: Path, target: Path) -> Pairs:
    """Read two files with one sentence per line; both may be gzipped.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is empty or not UTF-8, the numbers of lines differ, or a line is empty on one side only.
    """
    left, right = read_lines(source), read_lines(target)
    if len(left) != len(right):
        raise ValueError(f"{source} and {target} must have equally many lines, got {len(left):,} and {len(right):,}")
    return checked_pairs(zip(left, right, strict=True), lambda i: f"line {i} of {source} and {target}")


def checked_pairs(pairs: Iterable[Sequence[str]], place: Callable[[int], str]) -> Pairs:
    """Strip sentences and drop pairs that are empty on both sides.

    Raises:
        ValueError: a side is empty; the message has its `place`.
    """
    found: Pairs = []
    for i, (left, right) in enumerate(pairs, start=1):
        one, other = left.strip(), right.strip()
        if bool(one) != bool(other):
            side = "source" if other else "target"
            raise ValueError(f"{place(i)}: the {side} side is empty")
        if one:
            found.append((one, other))
    return found


def read_lines(path: Path) -> list[str]:
    """Read the lines of a file, which may be gzipped. Only a line feed ends a line."""
    check_file(path)
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: must be a gzip file that is complete: {error}") from None
    return split_lines(content, str(path))


def split_lines(content: bytes, name: str) -> list[str]:
    """Decode text and split it at line feeds, and at nothing else, so that files and standard input agree."""
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: must be text in UTF-8: {error}") from None
    return lines[:-1] if lines[-1] == "" else lines


def make_pair_data(
    name: str, splits: Mapping[str, Pairs], kind: str, vocabulary_size: int | None, shared: bool, note: str
) -> PairData:
    """Make vocabularies from the training split, and token ids of all splits.

    Args:
        name: name of the dataset.
        splits: the sentence pairs of "train", "valid" and "test".
        kind: "bpe", "words" or "characters".
        vocabulary_size: number of tokens of each vocabulary; default 8000 for "bpe", all others have all tokens.
        shared: one vocabulary for both sides.
        note: facts that readers of results need.
    """
    one_of("kind", kind, KINDS)
    if vocabulary_size is not None:
        positive_int("vocabulary_size", vocabulary_size, minimum=256 if kind == "bpe" else 3)
    lefts, rights = [left for left, _ in splits["train"]], [right for _, right in splits["train"]]
    if boolean("shared", shared):
        source = target = _vocabulary([*lefts, *rights], kind, vocabulary_size)
    else:
        source, target = (_vocabulary(side, kind, vocabulary_size) for side in (lefts, rights))
    items = {
        split: PairItems(_encoded(source, pairs, 0), _encoded(target, pairs, 1)) for split, pairs in splits.items()
    }
    return PairData(name, source, target, items, note)


def _vocabulary(sentences: Sequence[str], kind: str, size: int | None) -> Vocabulary:
    """The tokens of sentences, each with a line end."""
    if kind == "bpe":
        index, merges = learn_pieces([[f"{sentence}\n" for sentence in sentences]], PIECES if size is None else size)
        return Vocabulary(sorted(index, key=index.__getitem__), "bpe", merges)
    split: Callable[[str], list[str]] = list if kind == "characters" else WORD.findall
    counts = Counter(token for sentence in sentences for token in split(sentence))
    first = ["\n" if kind == "characters" else END_OF_LINE, UNKNOWN]
    kept = [token for token, _ in counts.most_common() if token not in first]
    return Vocabulary([*first, *kept][:size], kind)


def _encoded(vocabulary: Vocabulary, pairs: Pairs, side: int) -> list[list[int]]:
    return [vocabulary.encode(f"{pair[side]}\n") for pair in pairs]
