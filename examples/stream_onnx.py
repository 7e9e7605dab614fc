"""Stream several sequences at once through an exported language model, with onnxruntime alone: no torch, no trellisnet.

    trellisnet train demo
    trellisnet export runs/demo-1 --output step.onnx
    python examples/stream_onnx.py step.onnx

The file has one step: the token ids (B) and the tensors of the state go in, log-probabilities (B, V) and the next state
come out. A state of zeros is the start of a sequence, so a row of the batch starts anew when its state is set to zero.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

PROMPTS = ("def ", "class ", "import ")


class Stream:
    """A batch of sequences that go on step by step; the state is kept here."""

    def __init__(self, path: str | Path, batch: int) -> None:
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        # every input but the ids is a tensor of the state, with the batch in dimension 1
        self.state = {
            each.name: np.zeros([batch if size == "batch" else size for size in each.shape], np.float32)
            for each in self.session.get_inputs()
            if each.name.startswith("state_")
        }

    def step(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read one token of each sequence (B); return the log-probabilities of the next ones (B, V)."""
        log_prob, *after = self.session.run(None, {"ids": ids, **self.state})
        self.state = dict(zip(self.state, after, strict=True))
        return np.asarray(log_prob)

    def restart(self, row: int) -> None:
        """Start a new sequence in a row of the batch; the others go on."""
        for tensor in self.state.values():
            tensor[:, row] = 0


def main(
    path: str | Path = "step.onnx", prompts: tuple[str, ...] = PROMPTS, characters: int = 100, seed: int = 0
) -> list[str]:
    """Continue every prompt by a number of characters; they have unequal lengths and share one batch."""
    stream = Stream(path, len(prompts))
    facts = stream.session.get_modelmeta().custom_metadata_map
    tokens = json.loads(facts["vocabulary"])["tokens"]
    numbers = {token: i for i, token in enumerate(tokens)}
    print(f"{path}: largest difference from the model {float(facts['largest_difference']):.1e}")
    draw = np.random.default_rng(seed)
    texts = [[numbers[character] for character in prompt] for prompt in prompts]
    for position in range(max(map(len, texts)) + characters - 1):
        log_prob = stream.step(np.array([text[min(position, len(text) - 1)] for text in texts], np.int64))
        for text, row in zip(texts, log_prob, strict=True):
            if position >= len(text) - 1:  # this prompt is read: draw, a little sharper than the model's probabilities
                share = np.exp((row - row.max()) / 0.7)
                text.append(int(draw.choice(len(tokens), p=share / share.sum())))
    written = ["".join(tokens[i] for i in text) for text in texts]
    print("\n---\n".join(written))
    return written


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "step.onnx")
