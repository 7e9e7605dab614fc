"""What every optimisation of the engine gives: a training step, or a step of a stream, with it switched off.

python benchmarks/optimisations.py              the table of docs/performance.md
python benchmarks/optimisations.py pixels       one shape only

CPU time of one thread, so that other programs of the machine hardly disturb it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any
from unittest import mock

import torch

from measure import Step, own_peak, training_step
from peers import SHAPES, Shape
from trellisnet import TrellisNet
from trellisnet.core import call as core_call
from trellisnet.core import engine, trellis
from trellisnet.core.engine import pairs, step, tiles

NEVER = 1 << 60
Switch = Callable[[], contextlib.AbstractContextManager[Any]]


def _in_place(call: Any, inputs: Any) -> Any:
    return engine._InPlace.apply(call, False, *inputs.flat())  # type: ignore[no-untyped-call]


class _Forgetful(list[Any]):
    def append(self, _: Any) -> None: ...


@contextlib.contextmanager
def _without_cone() -> Iterator[None]:
    forward = TrellisNet.forward

    def whole(net: TrellisNet, x: Any, *args: Any, tail: int | None = None, **options: Any) -> Any:
        y, *rest = forward(net, x, *args, **options)
        return y if tail is None else y[-tail:], *rest

    with mock.patch.object(TrellisNet, "forward", whole):
        yield


def _patch(place: Any, name: str, value: Any) -> Switch:
    return lambda: mock.patch.object(place, name, value)


TRAINING: dict[str, Switch] = {
    "all on": contextlib.nullcontext,
    "cone": _without_cone,
    "in place, own gradients": _patch(engine, "needs_ordinary_operations", lambda _: True),
    "pairs of steps": _patch(pairs, "PAIRED", NEVER),
    "tiles": _patch(tiles, "TILE", NEVER),
    "input multiplied once": _patch(core_call, "NARROW", NEVER),
    "narrow input per layer": _patch(core_call, "NARROW", 0),
    "spare buffer": _patch(engine, "give_buffer", lambda *_: None),
    "gates overwritten": _patch(engine, "_graph_is_retained", lambda: True),
}
STREAMING: dict[str, Switch] = {
    "all on": contextlib.nullcontext,
    "calls cached": _patch(trellis, "_is_traced", lambda _: True),
    "buffers of steps kept": _patch(step, "_pool", lambda _: _Forgetful()),
    "no bookkeeping": _patch(torch, "inference_mode", lambda _=True: contextlib.nullcontext()),
    "older taps at once": _patch(step, "run", _in_place),
}
IDLE = {  # what a shape has no use for
    "pixels": {"pairs of steps", "input multiplied once"},
    "words": {"narrow input per layer"},
    "full": {"cone", "narrow input per layer"},
}
STREAMS = {f"{hidden} x {layers}": (400, hidden, layers) for hidden, layers in ((700, 58), (256, 32))}


def stream_step(sizes: tuple[int, int, int]) -> Step:
    """One step of a stream of one sequence."""
    net, x = TrellisNet(*sizes).eval(), torch.randn(10, 1, sizes[0])
    states = [net(x)[1].detach()]

    @torch.no_grad()
    def run() -> None:
        states[0] = net(x[:1], states[0])[1]

    return run


def interleaved(switches: dict[str, Switch], make: Callable[[], Step], rounds: int, turn: int) -> dict[str, float]:
    """Median CPU seconds of a step with each optimisation switched off, all in turns."""
    steps, times = {name: make() for name in switches}, {name: list[float]() for name in switches}
    for _ in range(rounds):
        for name, switch in switches.items():
            with switch():
                steps[name]()
                for _ in range(turn):
                    start = time.process_time()
                    steps[name]()
                    times[name].append(time.process_time() - start)
    return {name: median(each) for name, each in times.items()}


def peak(shape: str, switch: str) -> float:
    """Bytes that a training step adds to a process of its own: the median of three."""
    run = [sys.executable, __file__, "peak", shape, switch]
    return median(float(subprocess.run(run, check=True, capture_output=True).stdout) for _ in range(3))


def main() -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if sys.argv[1:2] == ["peak"]:
        shape, small = SHAPES[sys.argv[2]], Shape("small", 2, 4, 2, 4, 2)
        with TRAINING[sys.argv[3]]():
            print(own_peak(lambda first: training_step("store", small if first else shape)))
        return
    for name in sys.argv[1:] or [*SHAPES, *STREAMS]:
        stream = name in STREAMS
        if stream:
            switches, make = STREAMING, lambda name=name: stream_step(STREAMS[name])
        else:
            switches = {switch: off for switch, off in TRAINING.items() if switch not in IDLE[name]}
            make = lambda name=name: training_step("store", SHAPES[name])  # noqa: E731
        seconds = interleaved(switches, make, *((20, 20) if stream else (3, 2)))
        memory = {} if stream else {switch: peak(name, switch) for switch in switches}
        for switch, each in seconds.items():
            ratio = f"{each / seconds['all on']:.2f}x time"
            if memory:
                ratio += f", {memory[switch] / memory['all on']:.2f}x memory ({memory[switch] / 2**20:.0f} MB)"
            print(f"{name}, without {switch}: {ratio}", flush=True)


if __name__ == "__main__":
    main()
