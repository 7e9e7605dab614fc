"""The walk up through the levels of one call, in place, and the means to come back to them on the way down.

Shapes: n rows (steps), B sequences, H hidden channels, G gates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import torch
from torch import Tensor

from trellisnet.core.cells import InPlaceCell
from trellisnet.core.engine.call import Inputs, Outputs, Pass, weighted
from trellisnet.core.engine.fusion import in_place_functions, is_fused
from trellisnet.core.engine.pairs import Pairs
from trellisnet.core.engine.storage import Keep, Kept, Room, TwoLevels
from trellisnet.core.engine.tiles import Tile, Tiles, cut, most_rows
from trellisnet.core.kernel import Term
from trellisnet.core.plan import channels_of, take


class Grid:
    """The levels of one call in storage, (context + n, B, H) each, and the gates between them.

    Going up, a level is dropped as soon as the next is computed, but for what `Keep` chooses. On the way down the rest
    is brought back, a segment between two kept levels at a time.
    """

    def __init__(self, call: Pass, inputs: Inputs, paired: tuple[bool, ...]) -> None:
        assert isinstance(call.cell, InPlaceCell)
        self.call, self.inputs, self.paired, self.batch = call, inputs, paired, inputs.batch
        self.keep = Keep(call, self.batch)
        self.tile_rows = most_rows(call, self.batch, inputs.sources[0].device)
        self.hidden: dict[int, Tensor | None] = {}  # by level; None: all zeros
        self.memory: dict[int, Tensor | None] = {}
        self.gates: dict[int, list[Tensor]] = {}  # by layer: (n, B, G*H), one a block
        self.products: dict[int, Tensor] = {}  # by source: what layers add that share it
        self.free = Room(inputs.sources[0])  # what of the buffer is not needed any more, or not yet
        self.functions = in_place_functions(call.cell, is_fused(call, inputs.sources[0].device))

    def empty(self, rows: int, width: int) -> Tensor:
        """Storage for some steps."""
        return self.inputs.sources[0].new_empty(rows, self.batch, width)

    def walk_room(self, buffer: Tensor | None) -> Room:
        """Room for what a walk works with: the end of the buffer, if it is there for that."""
        return Room(self.inputs.sources[0], None if buffer is None else buffer[self.keep.size :])

    def tiles(self, i: int) -> Iterator[Tiles]:
        """The steps that layer i computes, cut into tiles."""
        return cut(self.call.plan.layers[i].rows, self.tile_rows, self.paired[i])

    def empty_taps(self, b: int) -> Tensor:
        """Scratch memory for what all taps of a block read in a tile: (n*B, channels)."""
        weight = self.inputs.weights[b]
        return weight.new_empty(self.tile_rows * self.batch, len(weight))

    def prepare_pairs(self, scratch: Tensor | None = None) -> None:
        """Make ready for products of pairs of steps, where there are any."""
        if any(self.paired):
            self.pairs = Pairs(self.inputs.weights[0], self.empty_taps(0) if scratch is None else scratch)

    def forward(self, buffer: Tensor | None) -> Outputs:
        """Compute every level, and keep in the buffer what the way down needs."""
        kept = Kept()
        if buffer is not None:
            kept = self.keep.cut(buffer)
            # gates are kept from some layer on: the layers below it work where those will be
            self.free = Room(buffer, buffer[self.keep.starts[self.keep.layers.start] : self.keep.size])
        # all other room is made here: small pieces amid large ones would leave holes in the heap, more with every layer
        room = self.walk_room(buffer)
        levels, self.products = TwoLevels(self.keep, room), kept.products
        self._multiply_input(range(len(self.call.plan.layers)), room)
        scratch = [self.free.take(self.tile_rows, self.batch, width) for width in self.call.gate_widths]
        self.prepare_pairs()
        outputs = self.call.empty_outputs(self.inputs)
        self._open(0, *levels.at(0))
        for i in range(len(self.call.plan.layers)):
            hidden, memory = levels.at(i + 1)
            self._open(i + 1, kept.hidden.get(i + 1, hidden), kept.memory.get(i + 1, memory))
            self._run_layer(i, kept.gates.get(i), scratch)
            self._write_outputs(i + 1, outputs)
            del self.hidden[i], self.memory[i]
        return outputs

    def _write_outputs(self, level: int, outputs: Outputs) -> None:
        """Copy what the call returns of a level."""
        call, hidden, memory = self.call, self.hidden[level], self.memory[level]
        y, aux, state_h, state_c = outputs
        assert hidden is not None
        output = hidden[-call.plan.wanted :, :, call.output]
        if level == len(call.plan.layers):
            y.copy_(output)
        if aux is not None and level in call.aux:
            aux[call.aux.index(level)] = output
        for state, values in ((state_h, hidden), (state_c, memory)):
            if state is not None and values is not None:
                state[slice(*call.state_starts[level - 1 : level + 1])] = take(values, call.ends[level - 1])

    def reopen(self, buffer: Tensor, reusable: bool) -> None:
        """Begin the way down with what was kept. A buffer that nobody will read again is working memory as well."""
        kept = self.keep.cut(buffer)
        self.hidden, self.gates, self.products = kept.hidden, kept.gates, kept.products
        levels = range(len(self.call.plan.levels))
        self.memory = kept.memory if self.call.cell.has_memory else dict.fromkeys(levels)
        self.buffer, self.reusable, self.extra = buffer, reusable, buffer.new_empty(self.keep.extra)
        if any(i not in self.hidden for i in self.keep.layers if i):
            self.revealed = self.empty(max(level.rows for level in self.call.plan.levels), self.call.width)

    def rebuild(self, start: int, stop: int) -> None:
        """Bring back what the layers from one kept level to another need, but for hidden states to be revealed."""
        if self.reusable and stop not in self.keep.cramped:
            self.free = Room(self.buffer, self.buffer[self.keep.starts[stop] : self.keep.size])
        else:
            self.free = Room(self.buffer, self.extra)
        if not self.call.recompute:
            self.products = {}
            self._multiply_input((i for i in range(start, stop) if i not in self.gates), self.free)
        if start == 0:
            self._open(0)
        for i in range(start, stop):
            if i not in self.gates:
                self._open(i + 1)
                rows = self.call.plan.layers[i].rows
                self.gates[i] = [self.free.take(rows, self.batch, width) for width in self.call.gate_widths]
                self._run_layer(i, self.gates[i], [])
            elif i + 1 not in self.memory:
                self._open_memory(i + 1)
                self._remember(i)
        self.hidden.pop(stop, None)  # the layer above has already used it; its memory is needed once more

    def reveal(self, level: int) -> None:
        """Bring back the hidden state of a level, from the gates below it and its memory."""
        if level not in self.hidden:
            storage = self.revealed[: self.call.plan.levels[level].rows]
            self.hidden[level] = self._with_context(level, self.inputs.context_h, storage)
            self._expose(level - 1)

    def owns_gates(self, i: int) -> bool:
        """Whether the gates of layer i may be overwritten: nobody else will read them."""
        return self.reusable or i not in self.keep.layers

    def owns_memory(self, level: int) -> bool:
        """Whether the memory of a level may be overwritten."""
        return self.reusable or level not in self.keep.levels

    def finish(self, i: int) -> None:
        """Forget what only layer i needs."""
        del self.memory[i + 1], self.gates[i]
        self.hidden.pop(i, None)  # it was not revealed where no weight wants a gradient

    def is_zero(self, level: int) -> bool:
        """Whether a level is nothing but zeros: it lies below the first layer, and has no context."""
        return level == 0 and (self.inputs.context_h is None or self.call.first_level == 1)

    def _open(self, level: int, hidden: Tensor | None = None, memory: Tensor | None = None) -> None:
        """Put in place storage for a level, or make it, and fill in its left context."""
        if self.is_zero(level):
            self.hidden[level] = self.memory[level] = None
            return
        self.hidden[level] = self._with_context(level, self.inputs.context_h, hidden)
        self._open_memory(level, memory)

    def _open_memory(self, level: int, memory: Tensor | None = None) -> None:
        has = self.call.cell.has_memory
        self.memory[level] = self._with_context(level, self.inputs.context_c, memory) if has else None

    def _with_context(self, level: int, context: Tensor | None, storage: Tensor | None) -> Tensor:
        known, rows = len(self.call.plan.levels[level].context), self.call.plan.levels[level].rows
        if storage is None:
            storage = self.free.take(rows, self.batch, self.call.width)
        if known:
            storage[:known] = 0 if context is None else context[self.call.context(level)]
        if level == 0:
            storage[known:] = 0
        return storage

    def _multiply_input(self, layers: Iterable[int], room: Room) -> None:
        """Compute what these layers, the lowest first, add of the input."""
        for s, (rows, width) in self.call.shared_products(layers).items():
            if s not in self.products:  # else it is one to be kept, and has its place
                self.products[s] = room.take(rows, self.batch, width)
            self.inputs.product(self.inputs.sources[s][-rows:], out=self.products[s])

    def _run_layer(self, i: int, kept: list[Tensor] | None, scratch: list[Tensor]) -> None:
        """Compute level i+1, and the gates to keep; others are in scratch memory for a moment."""
        for tiles in self.tiles(i):
            for b, block in enumerate(self.call.blocks):
                storage, first = (scratch[b], tiles[0].start) if kept is None else (kept[b], 0)
                gates = [tile.of_gates(storage, first) for tile in tiles]
                self._sum_products(i, b, tiles, gates)
                for tile, pre in zip(tiles, gates, strict=True):
                    self.functions.forward_(
                        self.by_gate(pre),
                        self.memory_before(i, b, tile),
                        channels_of(self.new(self.hidden, i, tile), block.channels),
                        channels_of(self.new(self.memory, i, tile), block.channels),
                    )
            for tile in tiles:
                self._mask(i, self.new(self.hidden, i, tile))
                self._silence(i, self.new(self.memory, i, tile))

    def _remember(self, i: int) -> None:
        """Make the memory of level i+1 from the gates of layer i."""
        for tile in chain(*self.tiles(i)):
            new_c = self.new(self.memory, i, tile)
            for b, block in enumerate(self.call.blocks):
                gates = self.by_gate(tile.of_gates(self.gates[i][b]))
                self.functions.remember_(gates, self.memory_before(i, b, tile), channels_of(new_c, block.channels))
            self._silence(i, new_c)

    def _expose(self, i: int) -> None:
        """Make the hidden state of level i+1 from the gates of layer i and that memory."""
        for tile in chain(*self.tiles(i)):
            new_h, new_c = self.new(self.hidden, i, tile), self.new(self.memory, i, tile)
            for b, block in enumerate(self.call.blocks):
                gates = self.by_gate(tile.of_gates(self.gates[i][b]))
                self.functions.expose_(gates, channels_of(new_c, block.channels), channels_of(new_h, block.channels))
            self._mask(i, new_h)

    def _mask(self, i: int, new_h: Tensor | None) -> None:
        """Let dropout act on a hidden state that layer i has made."""
        if self.inputs.mask is not None and new_h is not None:
            new_h.mul_(self.inputs.mask)
        self._silence(i, new_h)

    def _silence(self, i: int, new: Tensor | None) -> None:
        """Set channels to zero that are not alive in layer i."""
        if self.call.alive[i] is not None and new is not None:
            new[..., self.call.alive[i] :] = 0

    def by_gate(self, gates: Tensor) -> Tensor:
        """(n, B, G*H) as (n, B, G, H)."""
        return gates.view(*gates.shape[:-1], self.call.cell.gates, -1)

    def new(self, levels: dict[int, Tensor | None], i: int, tile: Tile) -> Tensor | None:
        """The part of level i+1 that a tile of layer i writes."""
        level = levels[i + 1]
        return None if level is None else tile.of(level)

    def _sum_products(self, i: int, b: int, tiles: Tiles, gates: list[Tensor]) -> None:
        """The pre-activations of one block in a tile of layer i, or in a couple of them."""
        s = self.call.sources[i][b]
        if len(tiles) == 2:
            first, second = gates
            factors = self.pairs.begin(self.rows_of_pairs(i, tiles, self.hidden[i]), first)
            self._add_source(s, tiles[1], second, first[: len(second)])  # before the first is no longer what both share
            self._add_source(s, tiles[0], first, first)
            self.pairs.finish(factors, first, second)
            return
        # what is added comes first: adding it to products afterwards takes longer
        self._add_source(s, tiles[0], gates[0])
        for term in self.call.blocks[b].terms if self.hidden[i] is not None else ():
            gates[0].flatten(0, 1).addmm_(self.tap(i, term, tiles[0]), self.inputs.weights[b][term.rows])

    def _add_source(self, s: int | None, tile: Tile, gates: Tensor, known: Tensor | None = None) -> None:
        """Write to the gates what is added to the products of a block, and to that products that are known already."""
        if s is None:
            source = gates.new_zeros(())
        elif not self.call.recipes[s].taps:
            source = self.inputs.sources[s]
        elif self.call.narrow:
            source = tile.of(self.inputs.sources[s]).flatten(0, 1)
            onto = None if known is None else known.flatten(0, 1)
            weighted(source, self.inputs.input_weight, onto, out=gates.flatten(0, 1))
            return
        else:
            source = tile.of(self.products[s])
        if known is None:
            gates.copy_(source)
        else:
            torch.add(source, known, out=gates)

    def rows_of_pairs(self, i: int, tiles: Tiles, level: Tensor | None) -> Tensor:
        """What a couple of tiles of layer i reads of a level, one row more than it has steps: (n+1, B, H)."""
        older = self.call.plan.layers[i].taps[0]
        assert level is not None
        assert isinstance(older, slice)
        return level[older.start + tiles[0].start : older.start + tiles[0].stop + 1]

    def tap(self, i: int, term: Term, tile: Tile) -> Tensor:
        """What a term reads in a tile of layer i, as a matrix (n*B, channels)."""
        storage = self.hidden[i]
        assert storage is not None
        read = take(storage, tile.part(self.call.plan.layers[i].taps[term.tap]))
        return channels_of(read, term.channels).flatten(0, 1)

    def memory_before(self, i: int, b: int, tile: Tile) -> Tensor | None:
        """The memory that a block starts from in a tile of layer i: (n, B, channels), or None for zeros."""
        storage = self.memory[i]
        if storage is None:
            return None
        return channels_of(take(storage, tile.part(self.call.plan.layers[i].memory)), self.call.blocks[b].channels)
