"""What a cell from expressions costs: the LSTM cell as a YAML text against the built-in one, in one process, in turns.

A training step is a forward and a backward pass; times are of the process, so that other work on the machine does not
count, and the median of many rounds. Run it with `python benchmarks/cells.py`; it takes a minute on one core.
"""

from __future__ import annotations

import json
import statistics
import time

import torch

from trellisnet import TrellisNet

LSTM = {"factor": "sigmoid(g2)", "offset": "sigmoid(g1) * tanh(g4)", "hidden": "sigmoid(g3) * tanh(m)"}
SHAPES = (("layers", 6), ("sweeps", 2))  # path, layers


def ratio(path: str, layers: int, rounds: int = 15, width: int = 256, steps: int = 64, batch: int = 32) -> float:
    """The time of a training step of the text, as a multiple of that of the built-in cell."""
    nets = [TrellisNet(64, width, layers, cell=cell, path=path) for cell in ("lstm", json.dumps(LSTM))]
    x = torch.randn(steps, batch, 64)
    times: list[list[float]] = [[] for _ in nets]
    for _ in range(rounds + 1):  # the first round warms up
        for net, own in zip(nets, times, strict=True):
            start = time.process_time()
            net(x)[0].sum().backward()
            own.append(time.process_time() - start)
    built_in, text = (statistics.median(own[1:]) for own in times)
    return text / built_in


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    for path, layers in SHAPES:
        print(f"{path}, {layers} layers: {ratio(path, layers):.2f}")
