"""Train a character model on Python's own library, and let it write.

    python examples/character_model.py

About a minute on one core, which ends with:

    unseen modules: 2.21 bits per character; 4.24 by frequencies alone

and with 400 characters that look like Python from afar, such as "name=fileser the compression". The text differs from
version to version of Python, and the numbers with it.
"""

from __future__ import annotations

import tempfile

import numpy as np
import torch

from trellisnet import TrainingConfig, TrellisLM, fit
from trellisnet.data import TextData, load

COLUMNS, STEPS = 16, 64  # of a batch: columns of the text that are read side by side, and characters of each


def main(steps: int = 600, characters: int = 400) -> dict[str, float]:
    """Train for n steps and write n characters; bits per character of unseen modules."""
    torch.manual_seed(0)
    library = load("python-library")
    assert isinstance(library, TextData)
    # Two passes over a piece from each part of the text, and the beginning of unseen modules: enough for two digits.
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
        depths=[(0.5, 3)],  # the weights do not depend on the depth: three layers are cheaper at first
        sample=0,
    )
    with tempfile.TemporaryDirectory() as folder:
        result = fit(lm, data, config, folder)

    counts = torch.bincount(torch.from_numpy(splits["test"].astype("int64"))).double()
    shares = counts[counts > 0] / counts.sum()
    bits = {"trellis": result.metrics["test"]["bits"], "frequencies": -(shares * shares.log2()).sum().item()}
    print(f"unseen modules: {bits['trellis']:.2f} bits per character; {bits['frequencies']:.2f} by frequencies alone")

    # A character costs one step through the layers, however long the text has become.
    prompt = "def "
    print(prompt, end="")
    for piece in lm.stream_text(prompt, characters, temperature=0.7, seed=1):
        print(piece, end="", flush=True)
    print()
    return bits


if __name__ == "__main__":
    main()
