"""Train a small character model on Python's own library, watch its bits per character fall, and let it write.

A minute on two cores. The state is carried exactly from window to window, and the text is streamed step by step.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet import TrellisNet
from trellisnet.data import TextBatches, Vocabulary
from trellisnet.data.text.library import load_library

HELD_OUT = 100_000  # characters of the test modules to evaluate on


class CharacterModel(nn.Module):
    """Embedding, trellis network, linear map to the next character."""

    def __init__(self, characters: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, 64)
        self.trellis = TrellisNet(64, width, num_layers=6, batch_first=True)
        self.decoder = nn.Linear(width, characters)

    def forward(self, ids: Tensor, state: object = None, depth: int | None = None) -> tuple[Tensor, object]:
        """Scores of the next character after every one of `ids` (B, T), and the state to go on from."""
        y, state = self.trellis(self.embedding(ids), state, depth=depth)
        return self.decoder(y), state


@torch.no_grad()
def bits_per_character(model: CharacterModel, batches: TextBatches) -> float:
    """Every character with all of its history: the columns are streamed in chunks, the state goes along."""
    state, total, count = None, 0.0, 0
    for batch in batches:
        scores, state = model(batch.inputs, state)
        total += F.cross_entropy(scores.flatten(0, 1), batch.targets.flatten(), reduction="sum").item()
        count += batch.targets.numel()
    return total / count / math.log(2)


@torch.no_grad()
def write(model: CharacterModel, vocabulary: Vocabulary, prompt: str, characters: int) -> None:
    """Stream text to the terminal as it is made."""
    ids, state = torch.tensor([vocabulary.encode(prompt)]), None
    print(prompt, end="", flush=True)
    for _ in range(characters):
        scores, state = model(ids, state)
        ids = torch.multinomial((scores[:, -1] / 0.7).softmax(-1), 1)
        print(vocabulary.tokens[int(ids)], end="", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to train (default: 60)")
    parser.add_argument("--width", type=int, default=256, help="hidden channels (default: 256)")
    parser.add_argument("--characters", type=int, default=400, help="how much to write (default: 400)")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_flush_denormal(True)
    data = load_library()
    training = data.batches("train", batch_size=32, steps=64)
    held_out = TextBatches(data.splits["test"][:HELD_OUT], batch_size=10, steps=500)
    model = CharacterModel(len(data.vocabulary), options.width)
    print(f"{len(data.splits['train']):,} characters to train on, {HELD_OUT:,} held out; ", end="")
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    print(f"before training: {bits_per_character(model, held_out):.3f} bits per character")
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    start, state, shown = time.perf_counter(), None, 0.0
    for batch in (batch for _ in itertools.count() for batch in training):
        used = (time.perf_counter() - start) / options.seconds
        if used >= 1:
            break
        # the weights do not depend on the depth: a net that is shallow at first learns faster
        depth = 2 if used < 0.3 else 4 if used < 0.6 else 6
        scores, state = model(batch.inputs, state if batch.continues else None, depth)
        loss = F.cross_entropy(scores.flatten(0, 1), batch.targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * (1 - used)
        optimizer.step()
        state = state.detach()
        if used >= shown + 0.1:
            shown += 0.1
            bits = loss.item() / math.log(2)
            print(f"{used:4.0%}  depth {depth}  training loss {bits:.3f} bits per character", flush=True)
    bits = bits_per_character(model, held_out)
    print(f"after {options.seconds:.0f} s: {bits:.3f} bits per character on held-out files")
    print("\nwhat it writes:\n")
    write(model, data.vocabulary, "def read(self", options.characters)


if __name__ == "__main__":
    main()
