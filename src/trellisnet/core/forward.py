"""The walk up through the levels of one call, in place.

Shapes: n rows (steps), B sequences, H hidden channels, G gates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from trellisnet.core.call import Inputs, Outputs, Pass
from trellisnet.core.cells import InPlaceCell
from trellisnet.core.fusion import in_place_functions
from trellisnet.core.kernel import Term
from trellisnet.core.plan import part, take

# A CPU computes a layer in tiles of about so many gates: what one operation leaves is still in cache for the next, and
# the scratch memory is small and used again instead of being fetched from the system in every layer. But matrix
# products want so many rows at least.
TILE = 1 << 21
TILE_ROWS = 1024

# In a net of so many channels, combining a level from its gates is nothing beside its products; in a narrower one it
# shows, so all levels are kept.
WIDE = 256


class Grid:
    """The levels of one call in storage, (context + n, B, H) each, and the gates between them.

    Going up, a level is dropped as soon as the next is computed. For the way down, some levels are kept, at equal
    distances, and the gates of all layers; the levels between are combined from the gates again, a segment at a time.
    With `recompute` the gates are not kept either, and a segment is computed again from the level below it.
    """

    def __init__(self, call: Pass, inputs: Inputs) -> None:
        assert isinstance(call.cell, InPlaceCell)
        self.call, self.inputs = call, inputs
        self.hidden: dict[int, Tensor | None] = {}  # by level; None: all zeros
        self.memory: dict[int, Tensor | None] = {}
        self.gates: dict[int, list[Tensor]] = {}  # by layer: (n, B, G*H), one a block
        self.batch = inputs.batch
        self.gate_widths = [call.cell.gates * (b.channels.stop - b.channels.start) for b in call.blocks]
        self.functions = in_place_functions(call.cell, inputs.sources[0].device)

    def empty(self, rows: int, width: int) -> Tensor:
        """Storage for some steps."""
        return self.inputs.sources[0].new_empty(rows, self.batch, width)

    @property
    def tile_rows(self) -> int:
        """The steps of a tile."""
        most = max(layer.rows for layer in self.call.plan.layers)
        if self.inputs.sources[0].device.type != "cpu":
            return most
        rows = max(TILE_ROWS, TILE // int(sum(self.gate_widths)))
        return min(most, max(1, rows // self.batch))

    def tiles(self, i: int) -> Iterator[tuple[int, int]]:
        """The steps that layer i computes, cut into tiles."""
        rows = self.call.plan.layers[i].rows
        count = -(-rows // self.tile_rows)
        for tile in range(count):
            yield tile * rows // count, (tile + 1) * rows // count

    @property
    def kept_levels(self) -> range:
        """The levels kept for the way down, but for level 0, so far apart that they and a segment need little."""
        depth = len(self.call.plan.layers)
        if self.call.recompute:  # a segment needs its gates too
            distance = math.ceil(math.sqrt(depth / (1 + self.call.cell.gates / 2)))
        else:
            distance = math.ceil(math.sqrt(depth)) if self.call.width >= WIDE else 1
        return range(distance, depth, distance)

    def forward(self, training: bool) -> Outputs:
        """Compute every level, and keep what the way down needs."""
        call, scratch = self.call, [self.empty(self.tile_rows, width) for width in self.gate_widths]
        kept = self.kept_levels if training else ()
        keep_gates = training and not call.recompute
        taken = []
        self._open(0)
        for i in range(len(call.plan.layers)):
            self._open(i + 1)
            if keep_gates:
                self._keep_gates(i)
            self._run_layer(i, self.gates.get(i), scratch)
            taken.append(self._take_outputs(i + 1))
            if i not in kept:
                del self.hidden[i], self.memory[i]
        aux, states_h, states_c = ([z for part in taken if (z := part[n]) is not None] for n in (1, 2, 3))
        y = taken[-1][0]
        assert y is not None
        state_h, state_c = (torch.cat(rows) if rows else None for rows in (states_h, states_c))
        return y, torch.stack(aux) if aux else None, state_h, state_c

    def _take_outputs(self, level: int) -> tuple[Tensor | None, ...]:
        """What the call returns of a level: y, aux, state h, state c."""
        call, hidden, memory = self.call, self.hidden[level], self.memory[level]
        assert hidden is not None
        output = hidden[-call.plan.wanted :, :, call.output]
        is_last = level == len(call.plan.layers)
        ends = call.ends[level - 1] if call.ends else None
        return (
            output.clone() if is_last else None,
            output.clone() if level in call.aux else None,
            None if ends is None else take(hidden, ends).clone(),
            None if ends is None or memory is None else take(memory, ends).clone(),
        )

    def rebuild(self, start: int, stop: int) -> None:
        """Bring back the levels from `start`, which was kept, up to `stop`, and the gates of the layers between."""
        if start == 0:
            self._open(0)
        for i in range(start, stop):
            if self.call.recompute:
                self._open(i + 1)
                self._keep_gates(i)
                self._run_layer(i, self.gates[i], [])
            elif i + 1 not in self.hidden:
                self._open(i + 1)
                self._run_layer(i, self.gates[i], [], only_combine=True)

    def drop(self, start: int, stop: int) -> None:
        """Forget what the layers between needed."""
        for i in range(start, stop):
            del self.hidden[i + 1], self.memory[i + 1]
            if self.call.recompute:
                del self.gates[i]

    def _keep_gates(self, i: int) -> None:
        self.gates[i] = [self.empty(self.call.plan.layers[i].rows, width) for width in self.gate_widths]

    def _open(self, level: int) -> None:
        """Make room for a level and fill in its left context."""
        is_zero = level == 0 and (self.inputs.context_h is None or self.call.first_level == 1)
        without = is_zero or not self.call.cell.has_memory
        self.hidden[level] = None if is_zero else self._with_context(level, self.inputs.context_h)
        self.memory[level] = None if without else self._with_context(level, self.inputs.context_c)

    def _with_context(self, level: int, context: Tensor | None) -> Tensor:
        known, steps = len(self.call.plan.levels[level].context), len(self.call.plan.levels[level].steps)
        storage = self.empty(known + steps, self.call.width)
        storage[:known] = 0 if context is None else context[self.call.context(level)]
        if level == 0:
            storage[known:] = 0
        return storage

    def _run_layer(self, i: int, kept: list[Tensor] | None, scratch: list[Tensor], only_combine: bool = False) -> None:
        """Compute level i+1 and the gates to keep; or only combine it from gates that were kept."""
        rows, alive, mask = self.call.plan.layers[i].rows, self.call.alive[i], self.inputs.mask
        hidden, memory = self.hidden[i + 1], self.memory[i + 1]
        assert hidden is not None
        for tile in self.tiles(i):
            new_h = hidden[-rows:][slice(*tile)]
            new_c = None if memory is None else memory[-rows:][slice(*tile)]
            for b, block in enumerate(self.call.blocks):
                gates = scratch[b][: tile[1] - tile[0]] if kept is None else kept[b][slice(*tile)]
                if not only_combine:
                    self._sum_products(i, b, tile, gates)
                function = self.functions.combine_ if only_combine else self.functions.forward_
                function(
                    gates.unflatten(-1, (self.call.cell.gates, -1)),
                    self.memory_before(i, b, tile),
                    new_h[..., block.channels],
                    None if new_c is None else new_c[..., block.channels],
                )
            if mask is not None:
                new_h.mul_(mask)
            if alive is not None:
                new_h[..., alive:] = 0
                if new_c is not None:
                    new_c[..., alive:] = 0

    def _sum_products(self, i: int, b: int, tile: tuple[int, int], gates: Tensor) -> None:
        """The pre-activations of one block in a tile of layer i."""
        products, started = gates.flatten(0, 1), False
        for w, term in self.call.terms(b) if self.hidden[i] is not None else ():
            self._product(products, self.tap(i, term, tile), self.inputs.weights[w], started)
            started = True
        source = self.source(i, b, tile)
        if source is None and not started:
            gates.zero_()
        elif source is not None and source.dim() == 3 and self.inputs.input_weight is not None:
            self._product(products, source.flatten(0, 1), self.inputs.input_weight, started)
        elif source is not None:
            gates.add_(source) if started else gates.copy_(source)

    @staticmethod
    def _product(out: Tensor, matrix: Tensor, weight: Tensor, add: bool) -> None:
        if add:
            out.addmm_(matrix, weight.t())
        else:
            torch.mm(matrix, weight.t(), out=out)

    def source(self, i: int, b: int, tile: tuple[int, int]) -> Tensor | None:
        """What is added to the products of a block in a tile of layer i."""
        s = self.call.sources[i][b]
        if s is None or self.inputs.sources[s].dim() == 1:
            return None if s is None else self.inputs.sources[s]
        return self.inputs.sources[s][-self.call.plan.layers[i].rows :][slice(*tile)]

    def tap(self, i: int, term: Term, tile: tuple[int, int]) -> Tensor:
        """What a term reads in a tile of layer i, as a matrix (n*B, channels)."""
        storage = self.hidden[i]
        assert storage is not None
        return take(storage, part(self.call.plan.layers[i].taps[term.tap], *tile)).flatten(0, 1)[:, term.channels]

    def memory_before(self, i: int, b: int, tile: tuple[int, int]) -> Tensor | None:
        """The memory that a block starts from in a tile of layer i: (n, B, channels), or None for zeros."""
        storage = self.memory[i]
        if storage is None:
            return None
        return take(storage, part(self.call.plan.layers[i].memory, *tile))[..., self.call.blocks[b].channels]
