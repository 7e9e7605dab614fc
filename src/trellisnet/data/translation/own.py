"""The user's own parallel text: two files, or one with tabs."""

from __future__ import annotations

from pathlib import Path

from trellisnet.data.translation.data import PairData
from trellisnet.data.translation.pairs import Pairs, checked_pairs, make_pair_data, read_lines, read_pairs

EVERY = 20  # of 20 pairs, one is for validation and one for testing


def load_translation(
    path: str | Path,
    target: str | Path | None = None,
    kind: str = "bpe",
    vocabulary_size: int | None = None,
    shared: bool = False,
) -> PairData:
    """Load your own parallel text, in UTF-8, one sentence per line; files may be gzipped.

    Of every 20 pairs, one is for validation and one for testing.

    Args:
        path: file of the source sentences; or, without `target`, a file of lines `source TAB target`.
        target: file of the translations, line by line.
        kind: "bpe" (pieces of words, learned from the training split; needs the extra `text`), "words" or "characters".
        vocabulary_size: number of tokens of each vocabulary; default 8000 for "bpe", and all tokens for the others.
        shared: one vocabulary, and one embedding, for both languages.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the files have unequal numbers of lines, a side is empty, or there are too few pairs.
    """
    first = Path(path).expanduser()
    if target is None:
        rows = [line.split("\t") for line in read_lines(first)]
        for i, row in enumerate(rows, start=1):
            if len(row) != 2:
                what = f"source and target, separated by one tab, got {len(row)} columns"
                raise ValueError(f"line {i} of {first} must have {what}; or give two files, path and target")
        pairs = checked_pairs(rows, lambda i: f"line {i} of {first}")
    else:
        pairs = read_pairs(first, Path(target).expanduser())
    if len(pairs) < EVERY:
        raise ValueError(f"{first}: must have at least {EVERY} sentence pairs, got {len(pairs)}")
    splits: dict[str, Pairs] = {"train": [], "valid": [], "test": []}
    for i, pair in enumerate(pairs):
        splits[{0: "valid", EVERY // 2: "test"}.get(i % EVERY, "train")].append(pair)
    return make_pair_data(first.stem, splits, kind, vocabulary_size, shared, f"own parallel text as {kind}")
