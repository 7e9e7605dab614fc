"""Turn a trained LSTM into a trellis network that gives the same, and train that further.

    python examples/continue_lstm.py

An LSTM learns to predict the characters of Python's own library. `from_rnn` makes a trellis network of it that gives
the same from the last 16 characters, and `densify` frees that of the LSTM's sparse kernel. Trained further on the same
text, it ends with a lower loss than the LSTM does, though its 16 layers make each step dearer. Losses are in nats a
character, on unseen modules.

The other examples train with `trellisnet.fit`; the training loop here is written by hand, to show how that is done.

Half a minute on one core, which ends with:

                                LSTM: 2.054
                          difference: 4.8e-07
               the same as a trellis: 2.055
                       dense trellis: 2.055
      dense trellis, trained further: 1.941
               LSTM, trained further: 1.979

The text differs from version to version of Python, and the numbers with it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet import from_rnn
from trellisnet.data import TextData, load

HORIZON = 16  # characters that a prediction of the trellis network looks back
Windows = Iterator[tuple[Tensor, Tensor]]


class CharacterModel(nn.Module):
    """Characters to logits of the next, through any net that is used like nn.LSTM."""

    def __init__(self, vocab_size: int, net: nn.Module) -> None:
        super().__init__()
        self.embedding, self.net, self.readout = nn.Embedding(vocab_size, 16), net, nn.Linear(64, vocab_size)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of the targets (T, B), in nats."""
        logits: Tensor = self.readout(self.net(self.embedding(ids))[0])
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def windows(data: TextData, split: str) -> Windows:
    """Characters (T, B) and those that follow, time first as in nn.LSTM; begins again after the end."""
    batches = data.batches(split, batch_size=32, steps=2 * HORIZON)
    while True:
        for batch in batches:
            yield batch.inputs.t(), batch.targets.t()


def train(model: nn.Module, text: Windows, steps: int) -> None:
    """Train at a rate that rises and falls."""
    optimiser = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=0.004, total_steps=steps)
    for _ in range(steps):
        loss = model(*next(text))
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimiser.step()
        schedule.step()


def evaluate(model: nn.Module, data: TextData) -> float:
    """The mean loss of 40 batches of unseen text."""
    text = windows(data, "test")
    with torch.no_grad():
        return float(sum(model(*next(text)) for _ in range(40)) / 40)


def main(lstm_steps: int = 1000, further_steps: int = 300) -> dict[str, float]:
    """Train the LSTM for so many steps, then everything for some more; losses, and how exact the conversion is."""
    torch.set_flush_denormal(True)  # deep stacks underflow, which makes a CPU slow
    torch.manual_seed(0)
    data = load("python-library")
    assert isinstance(data, TextData)
    text = windows(data, "train")

    rnn = nn.LSTM(16, 64)
    lstm = CharacterModel(len(data.vocabulary), rnn)
    train(lstm, text, lstm_steps)
    result = {"LSTM": evaluate(lstm, data)}

    # Theorem 1 of the paper. At every step, the trellis network gives what the LSTM gives after the last 16 characters.
    model = copy.deepcopy(lstm)  # with its own embedding and readout
    trellis = model.net = from_rnn(rnn, HORIZON)
    x = lstm.embedding(next(windows(data, "test"))[0])  # (32, 32, 16)
    with torch.no_grad():
        output, _ = trellis(x)
        ends = range(HORIZON, len(x) + 1)
        difference = max((output[end - 1] - rnn(x[end - HORIZON : end])[0][-1]).abs().max() for end in ends)
    result["difference"] = difference.item()
    result["the same as a trellis"] = evaluate(model, data)

    # Its kernel is that of an LSTM: zero wherever a trellis network could have weights. A dense kernel starts from the
    # same function, and may use those weights.
    model.net = trellis.densify()
    result["dense trellis"] = evaluate(model, data)
    further = list(islice(text, further_steps))
    train(model, iter(further), further_steps)
    result["dense trellis, trained further"] = evaluate(model, data)

    # What would the LSTM have learned from the same text?
    train(lstm, iter(further), further_steps)
    result["LSTM, trained further"] = evaluate(lstm, data)
    for name, value in result.items():
        print(f"{name:>32}: {value:.2g}" if name == "difference" else f"{name:>32}: {value:.3f}")
    return result


if __name__ == "__main__":
    main()
