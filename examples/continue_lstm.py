"""Convert a trained LSTM to an equivalent trellis network, and continue training.

    python examples/continue_lstm.py

An LSTM learns to predict the characters of Python's own library. `from_rnn` converts it to a trellis network that
computes the same function of the last 16 characters, and `densify` replaces the LSTM's sparse kernel by a dense one.
After further training on the same text its loss is lower than the LSTM's, although its 16 layers make each step more
expensive. Losses are in nats per character, on unseen modules.

The other examples train with `trellisnet.fit`; this one has its own training loop, to show how to write one.

Takes half a minute on one core. The last lines are:

                                LSTM: 2.054
                          difference: 4.8e-07
               the same as a trellis: 2.055
                       dense trellis: 2.055
      dense trellis, trained further: 1.941
               LSTM, trained further: 1.979

The text depends on the version of Python, and so do the numbers.
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

HORIZON = 16  # characters that each prediction of the trellis network depends on
Windows = Iterator[tuple[Tensor, Tensor]]


class CharacterModel(nn.Module):
    """Predicts the next character with any net that has the interface of nn.LSTM."""

    def __init__(self, vocab_size: int, net: nn.Module) -> None:
        super().__init__()
        self.embedding, self.net, self.readout = nn.Embedding(vocab_size, 16), net, nn.Linear(64, vocab_size)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of the targets (T, B), in nats."""
        logits: Tensor = self.readout(self.net(self.embedding(ids))[0])
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def windows(data: TextData, split: str) -> Windows:
    """Endless batches of characters (T, B) and the next ones, time first as in nn.LSTM."""
    batches = data.batches(split, batch_size=32, steps=2 * HORIZON)
    while True:
        for batch in batches:
            yield batch.inputs.t(), batch.targets.t()


def train(model: nn.Module, text: Windows, steps: int) -> None:
    """Train with a one-cycle learning rate."""
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
    """The mean loss over 40 batches of unseen text."""
    text = windows(data, "test")
    with torch.no_grad():
        return float(sum(model(*next(text)) for _ in range(40)) / 40)


def main(lstm_steps: int = 1000, further_steps: int = 300) -> dict[str, float]:
    """Train, convert, and train both models further; return the losses and the error of the conversion."""
    torch.set_flush_denormal(True)  # activations of deep nets underflow, and denormal numbers are slow
    torch.manual_seed(0)
    data = load("python-library")
    assert isinstance(data, TextData)
    text = windows(data, "train")

    rnn = nn.LSTM(16, 64)
    lstm = CharacterModel(len(data.vocabulary), rnn)
    train(lstm, text, lstm_steps)
    result = {"LSTM": evaluate(lstm, data)}

    # Theorem 1 of the paper: at every step, the output equals that of the LSTM after the last 16 characters.
    model = copy.deepcopy(lstm)  # with its own embedding and readout
    trellis = model.net = from_rnn(rnn, HORIZON)
    x = lstm.embedding(next(windows(data, "test"))[0])  # (32, 32, 16)
    with torch.no_grad():
        output, _ = trellis(x)
        ends = range(HORIZON, len(x) + 1)
        difference = max((output[end - 1] - rnn(x[end - HORIZON : end])[0][-1]).abs().max() for end in ends)
    result["difference"] = difference.item()
    result["the same as a trellis"] = evaluate(model, data)

    # The kernel of an LSTM is sparse. A dense kernel starts with the same function and zeros elsewhere, which training
    # can change.
    model.net = trellis.densify()
    result["dense trellis"] = evaluate(model, data)
    further = list(islice(text, further_steps))
    train(model, iter(further), further_steps)
    result["dense trellis, trained further"] = evaluate(model, data)

    # For comparison: the LSTM, trained further on the same text.
    train(lstm, iter(further), further_steps)
    result["LSTM, trained further"] = evaluate(lstm, data)
    for name, value in result.items():
        print(f"{name:>32}: {value:.2g}" if name == "difference" else f"{name:>32}: {value:.3f}")
    return result


if __name__ == "__main__":
    main()
