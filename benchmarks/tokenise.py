"""Tokenising a corpus of WikiText-103's size against a plain loop in one run: `make bench-data`.

The corpus is made up: 540 MB, about 95 million words of 268,000 different ones with frequencies as in Zipf's law. Each
contestant runs in a process of its own, in turns, and reports its seconds and its peak memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from measure import status
from trellisnet.data.text.ranges import FileRange
from trellisnet.data.text.tokenise import tokenise
from trellisnet.data.text.words import WordTokeniser

VOCABULARY = 267_734  # and <eos>
SIZE = 540_000_000
LETTERS = b"etaoinsrhldcumfpgwybvkxjqz"
RESULTS = Path(__file__).with_name("tokenise.json")


def write_corpus(path: Path, size: int, vocabulary: int) -> None:
    """Lines of random words in the layout of WikiText: frequent words are short, every word occurs."""
    rng = np.random.default_rng(0)
    words: dict[bytes, None] = {}
    while len(words) < vocabulary:
        length = 1 + int(np.log(len(words) + 7) / np.log(7))
        words[bytes(LETTERS[i] for i in rng.integers(len(LETTERS), size=length))] = None
    chances = 1 / (np.arange(vocabulary) + 2.7)
    cumulated = np.cumsum(chances / chances.sum())
    names = list(words)
    with path.open("wb") as file:
        file.write(b" " + b" ".join(names) + b" \n")
        while file.tell() < size:
            some = iter(np.searchsorted(cumulated, rng.random(10**6)).tolist())
            for length in rng.geometric(1 / 57, 10**6 // 60).tolist():
                file.write(b" " + b" ".join([names[i] for i, _ in zip(some, range(length), strict=False)]) + b" \n")


def plain(path: Path) -> tuple[int, int]:
    """Two passes, a `Counter` and a dictionary."""
    counts: Counter[str] = Counter()
    with path.open(encoding="utf-8") as file:
        for line in file:
            counts.update([*line.split(), "<eos>"])
    index = {word: number for number, (word, _) in enumerate(counts.most_common())}
    ids = array("I")
    with path.open(encoding="utf-8") as file:
        for line in file:
            ids.extend([index[word] for word in line.split()])
            ids.append(index["<eos>"])
    return len(ids), len(index)


def ours(path: Path) -> tuple[int, int]:
    """What `load` does, into a fresh cache."""
    with tempfile.TemporaryDirectory(dir=path.parent) as cache:
        os.environ["TRELLISNET_CACHE"] = cache
        vocabulary, ids = tokenise("bench", {"train": [FileRange(path)]}, "words", WordTokeniser, add_unknown=False)
        return len(ids["train"]), len(vocabulary)


CONTESTANTS: dict[str, Callable[[Path], tuple[int, int]]] = {"plain": plain, "trellisnet": ours}


def run_apart(name: str, path: Path) -> dict[str, float]:
    """Seconds, peak memory and what was counted, of one contestant in a fresh process."""
    run = [sys.executable, __file__, name, str(path)]
    result: dict[str, float] = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    return result


def _run(name: str, path: Path) -> dict[str, float]:
    start = time.perf_counter()
    tokens, vocabulary = CONTESTANTS[name](path)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak MB": status("VmHWM") / 1e6, "tokens": tokens, "vocabulary": vocabulary}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpus.txt"
        write_corpus(path, SIZE, VOCABULARY)
        print(f"{path.stat().st_size / 1e6:.0f} MB")
        rounds = [{name: run_apart(name, path) for name in CONTESTANTS} for _ in range(3)]
    ratios = sorted(each["plain"]["seconds"] / each["trellisnet"]["seconds"] for each in rounds)
    for each in rounds:
        print(each)
    counted = {(row["tokens"], row["vocabulary"]) for each in rounds for row in each.values()}
    assert len(counted) == 1, counted
    peak = max(each["trellisnet"]["peak MB"] for each in rounds)
    print(f"{ratios[1]:.1f} times as fast as the plain loop (median of {ratios}), peak {peak:.0f} MB")
    RESULTS.write_text(json.dumps({"rounds": rounds, "speedup": ratios[1], "peak MB": peak}, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(_run(sys.argv[1], Path(sys.argv[2]))))
    else:
        main()
