"""Depth as the number of iterations of a solver: one layer, again and again, until nothing changes any more.

With one dilation, and the input in every layer, all layers are the same map. If its iteration settles, its limit is a
fixed point that all ways through the grid share. Here all steps are iterated together, and nothing has a gradient: the
call after it runs the last few layers once more. (By steps, each step is solved on its own: `steps.py`.)

Shapes: T steps, B sequences, H hidden channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import torch

from trellisnet.core.call import Call, Inputs, Outputs
from trellisnet.core.engine import plain
from trellisnet.core.engine.forward import Layers
from trellisnet.core.engine.products import Products
from trellisnet.core.engine.storage import Level, Workspace
from trellisnet.core.taps import Reader

Solution = tuple[Outputs, tuple[int, ...]]  # the last level, and the number of iterations


def solve_in_place(call: Call, inputs: Inputs) -> Solution:
    """Iterate the layer of a call, at most `call.repeats` times."""
    return _last(call, _in_place(call, inputs))


def solve(call: Call, inputs: Inputs, reader: Reader | None) -> Solution:
    """The same with ordinary operations."""
    return _last(call, _ordinary(call, inputs, reader))


def _last(call: Call, levels: Iterator[tuple[Level, float]]) -> Solution:
    """Iterate until no hidden state changes by more than the tolerance; also while a change is not a number."""
    assert call.tolerance is not None
    with torch.no_grad():
        for count, (level, change) in enumerate(islice(levels, call.repeats), 1):  # noqa: B007 (both are read after it)
            if change <= call.tolerance:
                break
    assert level.h is not None
    return (level.h[..., call.output], None, level.h, level.c), (count,)


def _in_place(call: Call, inputs: Inputs) -> Iterator[tuple[Level, float]]:
    """Two levels take turns. What the input adds to them is multiplied once."""
    workspace = Workspace(call, inputs.input_weight.new_empty(0), going_up=True)
    layers = Layers(call, inputs, Products(call, inputs, workspace))
    below, above = (layers.open(i, level) for i, level in enumerate(workspace.levels))
    while True:
        layers.run(0, below, above, None, workspace.gates)
        below, above = above, below
        assert below.h is not None
        assert above.h is not None
        # tile by tile, because a difference of whole levels would be one more of them
        changes = [(below.h[tile.new] - above.h[tile.new]).abs().max() for tile in layers.tiles[0]]
        known = call.plan.spans[0]
        yield Level(*(None if z is None else z[known:] for z in below)), torch.stack(changes).max().item()


def _ordinary(call: Call, inputs: Inputs, reader: Reader | None) -> Iterator[tuple[Level, float]]:
    while True:
        _, _, h, c = plain.run(call, inputs, None if reader is None else reader(call, inputs))
        assert h is not None
        change = h if inputs.start_h is None else h - inputs.start_h
        yield Level(h, c), float(change.abs().max())
        inputs = replace(inputs, start_h=h, start_c=c)
