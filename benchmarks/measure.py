"""Timing contestants side by side, and the memory of one in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from peers import SHAPES, PlainTrellis, Shape, make_tcn
from trellisnet import TrellisNet
from trellisnet.core.plan import make_plan

Step = Callable[[], object]
PEAK_PRODUCTS = 30  # large ones, which take about as long as a training step


def interleaved(
    contestants: Mapping[str, Step], rounds: int, clock: Callable[[], float] | None = None
) -> dict[str, float]:
    """Seconds of each contestant: the median of its steps in several rounds in which all take turns of a second.

    The clock is the wall's by default; `time.process_time` counts the seconds of a thread where other work disturbs.

    The best step would favour short contestants, which get more tries in their turns. The first step of a turn does not
    count: caches and heap are as another contestant has left them, while who trains a net repeats the same step.
    """
    clock = clock or time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, step in contestants.items():
            step()
            turn = clock()
            while (start := clock()) < turn + 1:
                step()
                times[name].append(clock() - start)
    return {name: median(each) for name, each in times.items()}


def training_step(name: str, shape: Shape) -> Step:
    """Forward and backward of one contestant at one shape."""
    torch.manual_seed(0)
    x = torch.randn(shape.steps, shape.batch, shape.input_size)
    last = slice(None) if shape.tail is None else slice(-shape.tail, None)
    forward: Callable[[], Tensor]
    model: nn.Module
    if name in ("store", "recompute"):
        net = model = TrellisNet(
            shape.input_size, shape.hidden_size, shape.num_layers, dilation=shape.dilation, memory=name
        )
        forward = lambda: net(x, tail=shape.tail)[0]  # noqa: E731
    elif name == "lstm":
        lstm = model = nn.LSTM(shape.input_size, shape.hidden_size)
        forward = lambda: lstm(x)[0][last]  # noqa: E731
    else:
        model = PlainTrellis(shape) if name == "plain" else make_tcn(shape)
        columns = x.permute(1, 2, 0).contiguous()
        forward = lambda: model(columns)[..., last]  # noqa: E731

    def step() -> None:
        model.zero_grad()
        forward().square().mean().backward()

    return step


def products(shape: Shape) -> float:
    """Floating-point operations of the matrix products of a training step, a product a tap, as convolutions count them.

    The core does with fewer where it multiplies pairs of steps: see `executed_products`.
    """
    net = TrellisNet(1, 1, shape.num_layers, dilation=shape.dilation)
    wanted = None if shape.tail is None else range(shape.steps - shape.tail, shape.steps)
    plan = make_plan(shape.steps, wanted, net.state_form.dilations(shape.num_layers + 1), 2, torch.device("cpu"))
    rows = sum(layer.rows for layer in plan.layers[1:]) * shape.batch  # nothing lies below the first layer
    hidden = 3 * rows * shape.hidden_size  # forward, and the gradients of the states and of the weights
    injected = 2 * plan.layers[0].rows * shape.batch * shape.input_size  # at least once; x wants no gradient
    return 2 * 2 * (hidden + injected) * 4 * shape.hidden_size  # multiply and add, taps, gates


class ProductCounter(TorchDispatchMode):
    """Counts the floating-point operations of matrix products."""

    operations: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("mm", "addmm", "addmm_"):
            left, right = args[-2:]
            self.operations += 2 * left.shape[0] * left.shape[1] * right.shape[1]
        return func(*args, **(kwargs or {}))


def executed_products(step: Step) -> int:
    """Floating-point operations of the matrix products that a step of the core really makes."""
    counter = ProductCounter()  # type: ignore[no-untyped-call]
    with counter:
        step()
    return counter.operations


def share_of_peak(step: Step, shape: Shape, rounds: int = 16) -> float:
    """The rate of a training step's matrix products, as a share of the rate of large ones.

    On a shared machine both rates swing by several percent within seconds: so it is the median of many shares, each of
    large products and the step after them. Between the two there is one step that does not count, as in `interleaved`.
    """
    a, b, out = (torch.randn(2048, 2048) for _ in range(3))
    operations, shares = products(shape), []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(PEAK_PRODUCTS):
            torch.mm(a, b, out=out)
        peak = PEAK_PRODUCTS * 2 * 2048**3 / (time.perf_counter() - start)
        step()
        start = time.perf_counter()
        step()
        shares.append(operations / (time.perf_counter() - start) / peak)
    return median(shares)


def peak_memory(name: str, shape: Shape) -> float:
    """Bytes that a training step adds to a fresh process with its model and batch in place: the median of five.

    The heap differs from one to the other: at the full shape, the plain network's peak is now and then a quarter lower.
    """
    return median(in_own_process(__file__, name, shape.name) for _ in range(5))


def in_own_process(script: str, *arguments: str) -> float:
    """The number that a script prints."""
    run = [sys.executable, script, *arguments]
    return float(json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout))


def own_peak(make: Callable[[bool], Step]) -> int:
    """Bytes that a step adds to this process. `make` builds the step, or a small one of the same kind."""
    torch.set_flush_denormal(True)
    make(True)()  # libraries and threads are loaded before the count begins
    step = make(False)
    before = status("VmRSS")
    step()
    step()
    return status("VmHWM") - before


def status(field: str) -> int:
    """Bytes of resident memory now or at the peak. (`getrusage` would also count the parent's peak.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


if __name__ == "__main__":
    small_shape = Shape("small", 2, 4, 2, 4, 2)
    print(own_peak(lambda small: training_step(sys.argv[1], small_shape if small else SHAPES[sys.argv[2]])))
