"""The walk up through the levels of one call, in place.

Shapes: n rows (steps), B sequences, H hidden channels, G gates.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from trellisnet.core.call import Inputs, Outputs, Pass
from trellisnet.core.cells import InPlaceCell
from trellisnet.core.fusion import in_place_functions
from trellisnet.core.kernel import Term
from trellisnet.core.plan import part, take

# A CPU computes a layer in tiles of about so many gates: what one operation leaves is still in cache for the next, and
# the scratch memory is small and used again instead of being fetched from the system in every layer.
TILE = 1 << 22


class Grid:
    """The levels of one call in storage: (context + n, B, H) each, None where a level is all zeros."""

    def __init__(self, call: Pass, inputs: Inputs) -> None:
        assert isinstance(call.cell, InPlaceCell)
        self.call, self.inputs = call, inputs
        self.hidden: list[Tensor | None] = []
        self.memory: list[Tensor | None] = []
        self.gates: list[Tensor] = []  # (n, B, G*H), one a layer and block, if they are kept
        self.batch = inputs.batch
        self.gate_widths = [call.cell.gates * (b.channels.stop - b.channels.start) for b in call.blocks]
        self.activate_, self.differentiate_ = in_place_functions(call.cell, inputs.sources[0].device)

    def empty(self, rows: int, width: int) -> Tensor:
        """Storage for some steps."""
        return self.inputs.sources[0].new_empty(rows, self.batch, width)

    @property
    def tile_rows(self) -> int:
        """The steps of a tile."""
        if self.inputs.sources[0].device.type != "cpu":
            return max(layer.rows for layer in self.call.plan.layers)
        return max(1, TILE // (self.batch * int(sum(self.gate_widths))))

    def tiles(self, i: int) -> Iterator[tuple[int, int]]:
        """The steps that layer i computes, cut into tiles."""
        rows = self.call.plan.layers[i].rows
        count = -(-rows // self.tile_rows)
        for tile in range(count):
            yield tile * rows // count, (tile + 1) * rows // count

    def forward(self, keep_gates: bool) -> Outputs:
        """Compute every level; keep the gates for the backward walk, or not."""
        call, wanted = self.call, self.call.plan.wanted
        scratch = None if keep_gates else [self.empty(self.tile_rows, width) for width in self.gate_widths]
        self._open(0)
        for i in range(len(call.plan.layers)):
            self._open(i + 1)
            self._run_layer(i, scratch)
        outputs = [self.hidden[level][-wanted:, :, call.output] for level in (*call.aux, -1)]  # type: ignore[index]
        aux = torch.stack(outputs[:-1]) if call.aux else None
        y = outputs[-1].clone()
        if not call.ends:
            return y, aux, None, None
        return y, aux, self._state(self.hidden), self._state(self.memory) if call.cell.has_memory else None

    def _state(self, levels: list[Tensor | None]) -> Tensor:
        return torch.cat([take(level, rows) for level, rows in zip(levels[1:], self.call.ends, strict=True)])  # type: ignore[arg-type]

    def _open(self, level: int) -> None:
        """Make room for a level and fill in its left context."""
        is_zero = level == 0 and (self.inputs.context_h is None or self.call.first_level == 1)
        self.hidden.append(None if is_zero else self._with_context(level, self.inputs.context_h))
        without = is_zero or not self.call.cell.has_memory
        self.memory.append(None if without else self._with_context(level, self.inputs.context_c))

    def _with_context(self, level: int, context: Tensor | None) -> Tensor:
        known, steps = len(self.call.plan.levels[level].context), len(self.call.plan.levels[level].steps)
        storage = self.empty(known + steps, self.call.width)
        storage[:known] = 0 if context is None else context[self.call.context(level)]
        if level == 0:
            storage[known:] = 0
        return storage

    def _run_layer(self, i: int, scratch: list[Tensor] | None) -> None:
        rows, alive, mask = self.call.plan.layers[i].rows, self.call.alive[i], self.inputs.mask
        all_gates = scratch or [self.empty(rows, width) for width in self.gate_widths]
        if scratch is None:
            self.gates += all_gates
        hidden, memory = (None if z[i + 1] is None else z[i + 1][-rows:] for z in (self.hidden, self.memory))  # type: ignore[index]
        assert hidden is not None
        for tile in self.tiles(i):
            new_h, new_c = hidden[slice(*tile)], None if memory is None else memory[slice(*tile)]
            rows_of_tile = slice(tile[1] - tile[0]) if scratch else slice(*tile)
            for b, gates in enumerate(all_gates):
                self.run_block(i, b, tile, gates[rows_of_tile], new_h, new_c)
            if mask is not None:
                new_h *= mask
            if alive is not None:
                new_h[..., alive:] = 0
                if new_c is not None:
                    new_c[..., alive:] = 0

    def run_block(
        self, i: int, b: int, tile: tuple[int, int], gates: Tensor, hidden: Tensor, memory: Tensor | None
    ) -> None:
        """Compute one block of a tile of layer i: its gates, and its channels of the state."""
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
        channels = self.call.blocks[b].channels
        self.activate_(
            gates.unflatten(-1, (self.call.cell.gates, -1)),
            self.memory_before(i, b, tile),
            hidden[..., channels],
            None if memory is None else memory[..., channels],
        )

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
