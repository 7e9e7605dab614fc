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
from trellisnet.core.engine.scan import scan_
from trellisnet.core.engine.storage import Kept, Level, Workspace, part_of
from trellisnet.core.engine.tiles import Tile, Tiling


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
        known, inputs = self.call.plan.spans[level], self.inputs
        contexts, starts = (inputs.context_h, inputs.context_c), (inputs.start_h, inputs.start_c)
        for rows, context, start in zip(storage, contexts, starts, strict=True):
            if rows is not None:
                rows[:known] = 0 if context is None else context[self.call.contexts[level]]
                if level == 0:
                    rows[known:] = 0 if start is None else start
        return storage

    def run(self, i: int, below: Level, above: Level, kept: list[Tensor] | None, scratch: list[Tensor]) -> None:
        """Compute level i+1. Its gates are written to `kept`; None: to scratch, one tile after the other."""
        assert above.h is not None
        for tile in self.tiles[i]:
            gates = scratch if kept is None else [block[tile.gates] for block in kept]
            for b, block in enumerate(self.call.blocks):
                own = [gates[b][part.gates] for part in tile.parts]
                self.products.forward(i, b, tile, below.h, own)
                views = [self.views(each) for each in own]
                for each in views:
                    self.cell.activate_(each)
                self._remember(i, tile, block.channels, views, below.c, above.c)
                self._expose(tile, block.channels, views, above.c, above.h)
            self._finish(i, tile, above)

    def remember(self, i: int, before: Tensor | None, memory: Tensor, gates: list[Tensor]) -> None:
        """Recompute the memory of level i+1, from the gates of layer i and the memory of level i."""
        for tile in self.tiles[i]:
            for channels, views in self._blocks(tile, gates):
                self._remember(i, tile, channels, views, before, memory)
            self._finish(i, tile, Level(None, memory))

    def expose(self, i: int, memory: Tensor | None, hidden: Tensor, gates: list[Tensor]) -> None:
        """Recompute the hidden state of level i+1, from the gates of layer i and the memory of level i+1."""
        for tile in self.tiles[i]:
            for channels, views in self._blocks(tile, gates):
                self._expose(tile, channels, views, memory, hidden)
            self._finish(i, tile, Level(hidden, None))

    def _remember(
        self, i: int, tile: Tile, channels: slice, views: list[Views], before: Tensor | None, memory: Tensor | None
    ) -> None:
        """Write the memories of one block in a tile: from those of the level below, or with sweeps along time."""
        if memory is None:
            return
        sweeps = self.call.path == "sweeps"
        for part, each in zip(tile.parts, views, strict=True):
            new = part_of(memory, part.new, channels)
            if sweeps:
                self.cell.offset_(each, new)
            else:
                self.cell.remember_(each, part_of(before, part.memory, channels), new)
        if sweeps:
            factors = [self.cell.factor(each) for each in views]
            scan_(memory[..., channels], factors, tile, self.call.plan.layers[i].dilation)

    def _expose(self, tile: Tile, channels: slice, views: list[Views], memory: Tensor | None, hidden: Tensor) -> None:
        for part, each in zip(tile.parts, views, strict=True):
            self.cell.expose_(each, part_of(memory, part.new, channels), part_of(hidden, part.new, channels))

    def _blocks(self, tile: Tile, gates: list[Tensor]) -> Iterator[tuple[slice, list[Views]]]:
        """The channels of each block, and views of its gates in each part of a tile."""
        for block, own in zip(self.call.blocks, gates, strict=True):
            yield block.channels, [self.views(own[tile.gates][part.gates]) for part in tile.parts]

    def views(self, gates: Tensor) -> Views:
        """What the cell works on, of gates (n, B, G*H)."""
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
    if (end := call.end_of(level)) is not None:
        for target, values in zip(state, states, strict=True):
            if target is not None and values is not None:
                target[end[0]] = values[end[1]]
