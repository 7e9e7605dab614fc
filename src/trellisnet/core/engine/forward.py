"""The walk up through the levels of one call, in place.

Shapes: n rows (steps), B sequences, H hidden channels, G gates.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from trellisnet.core.call import Call, Inputs, Outputs
from trellisnet.core.cells import InPlaceCell, Views
from trellisnet.core.engine.products import Products
from trellisnet.core.engine.storage import Kept, Level, Workspace, part_of
from trellisnet.core.engine.tiles import Part, Tile, Tiling


def forward(call: Call, inputs: Inputs, kept: Kept, free: Tensor) -> Outputs:
    """Compute every level; what the backward pass needs is written to the tensors in `kept`."""
    workspace = Workspace(call, free, going_up=True)
    layers, outputs = Layers(call, inputs, Products(call, inputs, workspace)), _empty_outputs(call, inputs)
    below = layers.open(0, workspace.levels[0])
    for i in range(call.depth):
        h, c = workspace.levels[i + 1]
        above = layers.open(i + 1, Level(kept.hidden.get(i + 1, h), kept.memory.get(i + 1, c)))
        layers.run(i, below, above, kept.gates.get(i), workspace.gates)
        _write_outputs(call, i + 1, above, outputs)
        below = above
    return outputs


class Layers:
    """Computes a level from the one below it, or recomputes a part of it from the gates between them."""

    def __init__(self, call: Call, inputs: Inputs, products: Products) -> None:
        assert isinstance(call.cell, InPlaceCell)
        self.call, self.cell, self.inputs, self.products = call, call.cell, inputs, products
        self.tiles = call.derive(Tiling).layers

    def open(self, level: int, storage: Level) -> Level:
        """Write the left context of a level to its storage."""
        if level == 0 and self.call.zero_below:
            return Level(None, None)
        known = self.call.plan.spans[level]
        for rows, contexts in zip(storage, (self.inputs.context_h, self.inputs.context_c), strict=True):
            if rows is not None:
                rows[:known] = 0 if contexts is None else contexts[self.call.contexts[level]]
                if level == 0:
                    rows[known:] = 0
        return storage

    def run(self, i: int, below: Level, above: Level, kept: list[Tensor] | None, scratch: list[Tensor]) -> None:
        """Compute level i+1. Its gates are written to `kept`; None: to scratch, one tile after the other."""
        assert above.h is not None
        for tile in self.tiles[i]:
            gates = scratch if kept is None else [block[tile.gates] for block in kept]
            for b, block in enumerate(self.call.blocks):
                self.products.forward(i, b, tile, below.h, [gates[b][part.gates] for part in tile.parts])
                for part in tile.parts:
                    self.cell.forward_(
                        self._views(gates[b][part.gates]),
                        part_of(below.c, part.taps[-2], block.channels),
                        part_of(above.h, part.new, block.channels),
                        part_of(above.c, part.new, block.channels),
                    )
            self._finish(i, tile, above)

    def remember(self, i: int, before: Tensor | None, memory: Tensor, gates: list[Tensor]) -> None:
        """Recompute the memory of level i+1, from the gates of layer i and the memory of level i."""
        for tile in self.tiles[i]:
            for part, b, channels in self._parts(tile):
                old, new = part_of(before, part.taps[-2], channels), part_of(memory, part.new, channels)
                self.cell.remember_(self._views(gates[b][tile.gates][part.gates]), old, new)
            self._finish(i, tile, Level(None, memory))

    def expose(self, i: int, memory: Tensor | None, hidden: Tensor, gates: list[Tensor]) -> None:
        """Recompute the hidden state of level i+1, from the gates of layer i and the memory of level i+1."""
        for tile in self.tiles[i]:
            for part, b, channels in self._parts(tile):
                new_c, new_h = part_of(memory, part.new, channels), part_of(hidden, part.new, channels)
                self.cell.expose_(self._views(gates[b][tile.gates][part.gates]), new_c, new_h)
            self._finish(i, tile, Level(hidden, None))

    def _parts(self, tile: Tile) -> Iterator[tuple[Part, int, slice]]:
        return ((part, b, block.channels) for part in tile.parts for b, block in enumerate(self.call.blocks))

    def _views(self, gates: Tensor) -> Views:
        return self.cell.views(gates.unflatten(-1, (self.cell.gates, -1)))

    def _finish(self, i: int, tile: Tile, new: Level) -> None:
        """Apply dropout to the hidden state, and set channels to zero that are not alive in layer i."""
        if self.inputs.mask is not None and new.h is not None:
            new.h[tile.new].mul_(self.inputs.mask)
        if (alive := self.call.alive[i]) is not None:
            for states in new:
                if states is not None:
                    states[tile.new, :, alive:] = 0


def _empty_outputs(call: Call, inputs: Inputs) -> Outputs:
    wanted, width = call.plan.wanted, call.output.stop - call.output.start
    y = inputs.input_weight.new_empty(wanted, call.batch, width)
    aux = y.new_empty(len(call.aux), *y.shape) if call.aux else None
    if not call.ends:
        return y, aux, None, None
    h = y.new_empty(call.state_rows[-1].stop, call.batch, call.width)
    return y, aux, h, torch.empty_like(h) if call.cell.has_memory else None


def _write_outputs(call: Call, level: int, states: Level, outputs: Outputs) -> None:
    """Copy what the call returns of a level."""
    y, aux, *state = outputs
    assert states.h is not None
    output = states.h[-call.plan.wanted :, :, call.output]
    if level == call.depth:
        y.copy_(output)
    if aux is not None and level in call.aux:
        aux[call.aux.index(level)] = output
    for target, values in zip(state, states, strict=True):
        if target is not None and values is not None:
            target[call.state_rows[level - 1]] = values[call.ends[level - 1]]
