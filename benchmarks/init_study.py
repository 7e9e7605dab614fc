"""How should the weights start? Initialisations compared on three tasks, from scratch.

`characters` is language modelling (depth 8, dilation 1) on Python's own library, `deep` the same with 24 layers;
`adding` is the adding problem over 40 steps (dilations 1 to 32, only the last step read). The loss is the mean over the
last tenth of the training. Run it with `python benchmarks/init_study.py`; it takes half an hour on two cores.
`python benchmarks/init_study.py vectors` compares how the word vectors of a language model start, in minutes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet import TrellisLM, TrellisNet
from trellisnet.data import TextBatches
from trellisnet.data.text.library import load_library

Start = Callable[[TrellisNet], None]


def uniform(scale: float, forget: float) -> Start:
    """Weights from U(-scale/sqrt(H), scale/sqrt(H)), biases zero but for the forget gate."""

    def start(net: TrellisNet) -> None:
        bound = scale / math.sqrt(net.hidden_size)
        for parameter in net.parameters():
            nn.init.uniform_(parameter, -bound, bound)
        bias = torch.tensor([0.0, forget, 0.0, 0.0]).repeat_interleave(net.hidden_size)
        net.kernel.get_parameter("bias").data.copy_(bias)

    return start


def paper(net: TrellisNet) -> None:
    """The authors' N(0, 0.01)."""
    for parameter in net.parameters():
        nn.init.normal_(parameter, 0, 0.01)


STARTS: dict[str, Start] = {
    "paper: N(0, 0.01)": paper,
    **{f"U(+-{s}/sqrt(H)), forget bias {f:g}": uniform(s, f) for s in (0.35, 0.7, 1.0, 1.4, 2.0) for f in (0.0, 1.0)},
}


def deep(start: Start, rate: float) -> float:
    """Bits per character of a net of 24 layers."""
    return characters(start, rate, steps=100, depth=24)


def characters(start: Start, rate: float, steps: int = 150, depth: int = 8) -> float:
    """Bits per character."""
    data = load_library()
    batches = iter(TextBatches(data.splits["train"][:400_000], batch_size=32, steps=32))
    embedding = nn.Embedding(len(data.vocabulary), 64)
    net = TrellisNet(64, 128, depth, output_size=96, batch_first=True)
    start(net)
    decoder = nn.Linear(96, len(data.vocabulary))
    state = None

    def loss(_: int) -> Tensor:
        nonlocal state
        batch = next(batches)
        y, state = net(embedding(batch.inputs), state)
        state = state.detach()
        return F.cross_entropy(decoder(y).flatten(0, 1), batch.targets.flatten()) / math.log(2)

    return _train(nn.ModuleList([embedding, net, decoder]), loss, rate, steps)


def adding(start: Start, rate: float, steps: int = 800) -> float:
    """Mean squared error; 0.167 is what a constant answer reaches."""
    net, head = TrellisNet(2, 64, 7, dilation=(1, *(2**i for i in range(6)))), nn.Linear(64, 1)
    start(net)

    def loss(_: int) -> Tensor:
        values, marks = torch.rand(40, 64), torch.zeros(40, 64)
        for half in (0, 20):
            marks[half + torch.randint(20, (64,)), torch.arange(64)] = 1
        y, _ = net(torch.stack([values, marks], -1), tail=1)
        return F.mse_loss(head(y[0]).squeeze(-1), (values * marks).sum(0))

    return _train(nn.ModuleList([net, head]), loss, rate, steps)


def vectors(bound: float, channels: int, steps: int = 150) -> float:
    """Bits per character of a language model whose tied word vectors start from U(-bound, bound)."""
    data = load_library()
    batches = iter(TextBatches(data.splits["train"][:400_000], batch_size=32, steps=32))
    lm = TrellisLM(len(data.vocabulary), channels, 128, num_layers=8)
    nn.init.uniform_(lm.embedding.weight, -bound, bound)
    state = None

    def loss(_: int) -> Tensor:
        nonlocal state
        batch = next(batches)
        out = lm(batch.inputs, batch.targets, state)
        state = out.state
        bits: Tensor = out.loss / math.log(2)
        return bits

    return _train(lm, loss, 4e-3, steps)


def _train(model: nn.Module, loss: Callable[[int], Tensor], rate: float, steps: int) -> float:
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        value = loss(step)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(value.item())
    return sum(losses[-steps // 10 :]) / (steps // 10)


def compare_vectors() -> None:
    print(f"{'word vectors':24} {'16 channels':>12} {'64 channels':>12} {'128 channels':>13}  bits, means of 3 seeds")
    for scale in (None, 1, 2, 4, 6, 8, 12):
        name = "paper: U(+-0.1)" if scale is None else f"U(+-{scale}/sqrt(E))"
        results = []
        for channels in (16, 64, 128):
            values = []
            for seed in range(3):
                torch.manual_seed(seed)
                values.append(vectors(0.1 if scale is None else scale / math.sqrt(channels), channels))
            results.append(sum(values) / 3)
        print(f"{name:24} {results[0]:12.3f} {results[1]:12.3f} {results[2]:13.3f}", flush=True)


def main() -> None:
    torch.set_flush_denormal(True)
    if sys.argv[1:] == ["vectors"]:
        compare_vectors()
        return
    print(
        f"{'initialisation':34} {'characters (bits)':>18} {'deep (bits)':>12} {'adding (error)':>15}  means of 3 seeds"
    )
    for name, start in STARTS.items():
        results = []
        for task in (characters, deep, adding):
            values = []
            for seed in range(3):
                torch.manual_seed(seed)
                values.append(task(start, 4e-3))
            results.append(sum(values) / 3)
        print(f"{name:34} {results[0]:18.3f} {results[1]:12.3f} {results[2]:15.4f}", flush=True)


if __name__ == "__main__":
    main()
