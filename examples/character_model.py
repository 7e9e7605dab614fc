"""Train a character model on Python's own library, and generate text.

    python examples/character_model.py

Takes about a minute on one core. The last lines are:

    unseen modules: 2.21 bits per character; 4.24 by frequencies alone

and 400 characters that resemble Python, such as "name=fileser the compression". The text depends on the version of
Python, and so do the numbers.
"""

from __future__ import annotations

import tempfile

import numpy as np
import torch

from trellisnet import TrainingConfig, TrellisLM, fit
from trellisnet.data import TextData, load

COLUMNS, STEPS = 16, 64  # columns of the text that are read in parallel, and characters per column and batch


def main(steps: int = 600, characters: int = 400) -> dict[str, float]:
    """Train for `steps` steps and generate text; return the bits per character of unseen modules."""
    torch.manual_seed(0)
    library = load("python-library")
    assert isinstance(library, TextData)
    # Two epochs on a piece from each part of the text, and the beginning of unseen modules: enough for two digits.
    pieces = [part[: steps // 2 * STEPS + 1] for part in np.array_split(library.splits["train"], COLUMNS)]
    splits = {"train": np.concatenate(pieces), **{name: library.splits[name][:20_000] for name in ("valid", "test")}}
    data = TextData(library.name, library.vocabulary, splits)
    print(f"{len(splits['train']):,} characters, {len(data.vocabulary)} different ones; {library.note}")

    lm = TrellisLM(len(data.vocabulary), 48, hidden_size=160, num_layers=6)
    config = TrainingConfig(
        epochs=2,
        batch_size=COLUMNS,
        steps=STEPS,
        optimiser="adamw",
        learning_rate=0.006,
        schedule="cosine",
        warmup=0.3,
        clip=0.5,
        depths=[(0.5, 3)],  # the weights do not depend on the depth: start with three layers, which are cheaper
        sample=0,
    )
    with tempfile.TemporaryDirectory() as folder:
        result = fit(lm, data, config, folder)

    counts = torch.bincount(torch.from_numpy(splits["test"].astype("int64"))).double()
    shares = counts[counts > 0] / counts.sum()
    bits = {"trellis": result.metrics["test"]["bits"], "frequencies": -(shares * shares.log2()).sum().item()}
    print(f"unseen modules: {bits['trellis']:.2f} bits per character; {bits['frequencies']:.2f} by frequencies alone")

    # Each character costs one step through the layers, independent of the length of the text.
    prompt = "def "
    print(prompt, end="")
    for piece in lm.stream_text(prompt, characters, temperature=0.7, seed=1):
        print(piece, end="", flush=True)
    print()
    return bits


if __name__ == "__main__":
    main()
