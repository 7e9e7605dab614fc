"""Train a small character model on Python's own library, watch its bits per character fall, and let it write.

A minute on two cores. The state is carried exactly from window to window, and the text is streamed step by step.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from text import ALPHABET, as_columns, load_characters
from trellisnet import TrellisNet


class CharacterModel(nn.Module):
    """Embedding, trellis network, linear map to the next character."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(ALPHABET), 64)
        self.trellis = TrellisNet(64, width, num_layers=6)
        self.decoder = nn.Linear(width, len(ALPHABET))

    def forward(self, ids: Tensor, state: object = None, depth: int | None = None) -> tuple[Tensor, object]:
        """Scores of the next character after every one of `ids` (T, B), and the state to go on from."""
        y, state = self.trellis(self.embedding(ids), state, depth=depth)
        return self.decoder(y), state


@torch.no_grad()
def bits_per_character(model: CharacterModel, columns: Tensor) -> float:
    """Every character with all of its history: the columns are streamed in chunks, the state goes along."""
    state, total = None, 0.0
    for chunk in range(0, len(columns) - 1, 500):
        ids, targets = columns[chunk : chunk + 500], columns[chunk + 1 : chunk + 501]
        scores, state = model(ids[: len(targets)], state)
        total += F.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="sum").item()
    return total / ((len(columns) - 1) * columns.shape[1]) / math.log(2)


@torch.no_grad()
def write(model: CharacterModel, prompt: str, characters: int) -> None:
    """Stream text to the terminal as it is made."""
    ids, state = torch.tensor([[ALPHABET.index(c)] for c in prompt]), None
    print(prompt, end="", flush=True)
    for _ in range(characters):
        scores, state = model(ids, state)
        ids = torch.multinomial((scores[-1] / 0.7).softmax(-1), 1)
        print(ALPHABET[int(ids)], end="", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to train (default: 60)")
    parser.add_argument("--width", type=int, default=256, help="hidden channels (default: 256)")
    parser.add_argument("--characters", type=int, default=400, help="how much to write (default: 400)")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_flush_denormal(True)
    training, held_out = load_characters()
    columns, evaluation = as_columns(training, 32), as_columns(held_out, 10)
    model = CharacterModel(options.width)
    print(f"{len(training):,} characters to train on, {len(held_out):,} held out; ", end="")
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    print(f"before training: {bits_per_character(model, evaluation):.3f} bits per character")
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    start, state, position, steps = time.perf_counter(), None, 0, 64
    shown = 0.0
    while (used := (time.perf_counter() - start) / options.seconds) < 1:
        if position + steps + 1 > len(columns):
            state, position = None, 0
        ids, targets = columns[position : position + steps], columns[position + 1 : position + steps + 1]
        # the weights do not depend on the depth: a net that is shallow at first learns faster
        scores, state = model(ids, state, depth=2 if used < 0.3 else 4 if used < 0.6 else 6)
        loss = F.cross_entropy(scores.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * (1 - used)
        optimizer.step()
        state, position = state.detach(), position + steps
        if used >= shown + 0.1:
            shown += 0.1
            print(f"{used:4.0%}  depth {2 if used < 0.3 else 4 if used < 0.6 else 6}  ", end="")
            print(f"training loss {loss.item() / math.log(2):.3f} bits per character", flush=True)
    bits = bits_per_character(model, evaluation)
    print(f"after {options.seconds:.0f} s: {bits:.3f} bits per character on held-out files")
    print("\nwhat it writes:\n")
    write(model, "def read(self", options.characters)


if __name__ == "__main__":
    main()
