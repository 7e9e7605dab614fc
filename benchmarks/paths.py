"""The three ways through the grid: training step and stream beside an LSTM, costs over depth, and the fixed point."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import Tensor, nn

from measure import Step, in_own_process, interleaved, own_peak
from trellisnet import TrellisNet

# input, width, steps, batch: the small character model, the small word model, and `full` of the other benchmarks
SHAPES = ((64, 256, 64, 32), (128, 400, 40, 32), (200, 600, 128, 8))
ITERATIONS = 30  # of the fixed point
DEPTHS = {"LSTM": (1, 2, 4), "sweeps": (1, 2, 4, 8), "layers": (1, 2, 4, 8, 16, 32), "steps": (1, 2, 4, 8)}


def contestants(inputs: int, hidden: int) -> dict[str, nn.Module]:
    """Nets of one width with an output at every step."""
    lean: dict[str, Any] = {"cell": "coupled", "hidden_taps": 1, "path": "sweeps"}
    return {
        "LSTM, 2 layers": nn.LSTM(inputs, hidden, 2),
        "2 sweeps": TrellisNet(inputs, hidden, 2, path="sweeps"),
        "2 sweeps, coupled, one hidden tap": TrellisNet(inputs, hidden, 2, **lean),
        "8 layers": TrellisNet(inputs, hidden, 8),
    }


def training_paths() -> list[dict[str, Any]]:
    """A training step with an output at every step, against an LSTM of two layers."""
    rows = []
    for inputs, hidden, steps, batch in SHAPES:
        x = torch.randn(steps, batch, inputs)
        nets = contestants(inputs, hidden)
        seconds = interleaved({name: _training(net, x) for name, net in nets.items()}, rounds=5)
        rows += _rows(f"{inputs}, {hidden}, {steps}, {batch}", nets, seconds)
    return rows


def _training(net: nn.Module, x: Tensor) -> Step:
    def step() -> None:
        net.zero_grad()
        net(x)[0].square().mean().backward()

    return step


def streaming_paths() -> list[dict[str, Any]]:
    """A step of a stream (B 1) of the word shape, against an LSTM of two layers."""
    inputs, hidden = 400, 700
    nets: dict[str, nn.Module] = {
        "LSTM, 2 layers": nn.LSTM(inputs, hidden, 2),
        **{f"{n} sweeps": TrellisNet(inputs, hidden, n, path="sweeps") for n in (2, 3)},
        "steps, 3 iterations": TrellisNet(inputs, hidden, 3, path="steps"),
        "58 layers": TrellisNet(inputs, hidden, 58),
    }
    x = torch.randn(1, 1, inputs)
    with torch.no_grad():
        seconds = interleaved({name: _stream(net.eval(), x) for name, net in nets.items()}, rounds=5)
    return _rows(f"{inputs}, {hidden}, 1, 1", nets, seconds)


def _stream(net: nn.Module, x: Tensor) -> Step:
    state = net(x)[1]

    def step() -> None:
        nonlocal state
        state = net(x, state)[1]

    return step


def _rows(shape: str, nets: dict[str, nn.Module], seconds: dict[str, float]) -> list[dict[str, Any]]:
    return [
        {
            "input, width, steps, batch": shape,
            "net": name,
            "parameters": sum(parameter.numel() for parameter in net.parameters()),
            "ms": round(1000 * seconds[name], 2),
            "times LSTM": round(seconds[name] / seconds["LSTM, 2 layers"], 2),
        }
        for name, net in nets.items()
    ]


def depth_costs() -> list[dict[str, Any]]:
    """Processor time and memory of a training step per token, for each path and depth, at the first of the shapes."""
    inputs, hidden, steps, batch = SHAPES[0]
    x, rows = torch.randn(steps, batch, inputs), []
    for path, depths in DEPTHS.items():
        nets = {str(depth): _deep(path, depth, inputs, hidden) for depth in depths}
        seconds = interleaved({name: _training(net, x) for name, net in nets.items()}, 1, time.process_time)
        for depth in depths:
            microseconds = 1e6 * seconds[str(depth)] / (steps * batch)
            kilobytes = in_own_process(__file__, path, str(depth)) / 1024 / (steps * batch)
            rows.append({"path": path, "depth": depth, "µs per token": round(microseconds, 1)})
            rows[-1]["kB per token"] = round(kilobytes, 1)
    return rows


def _deep(path: str, depth: int, inputs: int, hidden: int) -> nn.Module:
    return nn.LSTM(inputs, hidden, depth) if path == "LSTM" else TrellisNet(inputs, hidden, depth, path=path)


def _deep_step(path: str, depth: int, small: bool) -> Step:
    inputs, hidden, steps, batch = (2, 4, 4, 2) if small else SHAPES[0]
    return _training(_deep(path, depth, inputs, hidden), torch.randn(steps, batch, inputs))


def fixed_point() -> list[dict[str, Any]]:
    """Peak memory of a training step: 30 layers stored, and 30 iterations with gradients through the last ones."""
    names = ("stored", "recomputed", *(f"fixed point, gradients through {n}" for n in (4, 1)))
    peaks = {name: in_own_process(__file__, name) for name in names}
    return [
        {"30 layers": name, "MB": round(peak / 2**20), "of stored": round(peak / peaks["stored"], 3)}
        for name, peak in peaks.items()
    ]


def _fixed_point_step(name: str, small: bool) -> Step:
    inputs, hidden, steps, batch = (2, 4, 4, 2) if small else (200, 600, 128, 32)
    memory = "recompute" if name == "recomputed" else "store"
    net = TrellisNet(inputs, hidden, ITERATIONS, memory=memory)
    if name.startswith("fixed point"):
        net.tolerance, net.phantom_layers = 0.0, int(name.rsplit(maxsplit=1)[-1])  # all iterations
    return _training(net, torch.randn(steps, batch, inputs))


if __name__ == "__main__":
    name, *depth = sys.argv[1:]
    print(own_peak(lambda small: _deep_step(name, int(depth[0]), small) if depth else _fixed_point_step(name, small)))
