"""What a call keeps for its way down: one buffer, in the order of the layers.

One buffer, because dozens of them leave holes in the heap. In the order of the layers, because the way down is done
with them one after the other from the last: the end of the buffer is free then for what has to be computed again.
Behind it all lies what both ways work with.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from itertools import pairwise

from torch import Tensor

from trellisnet.core.engine.call import Pass

# In a net of so many channels, making a level from its gates again is nothing beside its products; in a narrower one it
# shows, so all levels are kept.
WIDE = 256
# Where all steps are wanted, a wide net does not keep the gates of its lowest layers: of the first, which cost no
# product with hidden states, and of one in so many of all. To make them again takes a third of a layer's time, and as
# they come last on the way down, there is room for them in the buffer by then.
REMADE = 13


class Room:
    """Memory to work in: a part of the buffer as long as it lasts, then new memory."""

    def __init__(self, like: Tensor, free: Tensor | None = None) -> None:
        self.like, self.free = like, like.new_empty(0) if free is None else free

    def take(self, *shape: int) -> Tensor:
        """A tensor of that shape."""
        size = math.prod(shape)
        if size > len(self.free):
            return self.like.new_empty(shape)
        piece, self.free = self.free[:size], self.free[aligned(size) :]
        return piece.view(shape)


def aligned(size: int) -> int:
    """So many numbers or a few more, so that what follows them begins at a cache line."""
    return -(-size // 16) * 16


@dataclass
class Kept:
    """Tensors (rows, B, channels): of some levels the hidden state and the memory, of some layers the gates.

    Where layers are computed again, also the input's products.
    """

    hidden: dict[int, Tensor | None] = field(default_factory=dict)  # None is for the walks: all zeros
    memory: dict[int, Tensor | None] = field(default_factory=dict)
    gates: dict[int, list[Tensor]] = field(default_factory=dict)  # one tensor a block
    products: dict[int, Tensor] = field(default_factory=dict)  # of the input, by source


class Keep:
    """What of a call is kept, and where in the buffer.

    To store is to keep the gates of all layers and all levels. A wide net makes hidden states from gates again when
    their layer comes, and memories by segments between the few levels where they are kept. Where all steps are wanted,
    it also does without the gates of the lowest layers. To recompute is to keep a few levels and the input's products
    only.
    """

    def __init__(self, call: Pass, batch: int) -> None:
        self.call, self.batch = call, batch
        self.tensors_a_level = 2 if call.cell.has_memory else 1
        depth, wide = len(call.plan.layers), call.width >= WIDE
        if call.recompute:
            self.layers, self.levels = range(depth, depth), self._levels_to_recompute_from()
        elif wide:
            remade = 1 + depth // REMADE if call.plan.whole else 0
            self.layers = range(min(depth, remade), depth)
            self.levels = self._levels_with_memory() if call.cell.has_memory else []
        else:
            self.layers, self.levels = range(depth), [*range(1, depth)]
        self.segments = list(pairwise([0, *self.levels, depth]))
        # what, of which level, layer or source, start, rows, width
        self.places: list[tuple[str, int, int, int, int]] = []
        self.starts: list[int] = []  # of the gates of each layer, at the end of it all that of none
        self.size = 0
        products = call.shared_products(range(depth))
        for s, shape in products.items() if call.recompute else ():  # every segment needs them again
            self._place("products", s, *shape)
        for i in range(depth):
            if i in self.levels and (call.recompute or not wide):
                self._place("hidden", i, call.plan.levels[i].rows, call.width)
            if i in self.levels and call.cell.has_memory:
                self._place("memory", i, call.plan.levels[i].rows, call.width)
            self.starts.append(self.size)
            for width in call.gate_widths if i in self.layers else ():
                self._place("gates", i, call.plan.layers[i].rows, width)
        self.starts.append(self.size)
        # behind it the walks up and down have room for two levels at a time, and for the input's products
        self.walk = [max(level.rows for level in call.plan.levels[parity::2]) for parity in range(2)]
        self.whole_size = self.size + self.tensors_a_level * sum(self._size_of(rows, call.width) for rows in self.walk)
        self.whole_size += sum(self._size_of(*shape) for shape in products.values())
        remade_sizes = {stop: self._remade_size(start, stop) for start, stop in self.segments}
        # what the way down makes again in a segment finds room where the layers above were, but for these segments
        self.cramped = {stop for stop, size in remade_sizes.items() if size > self.size - self.starts[stop]}
        self.extra = max((remade_sizes[stop] for stop in self.cramped), default=0)  # the room that they need

    def _levels_to_recompute_from(self) -> list[int]:
        """Levels so far apart that the sum of them and of a segment between two of them, with its gates, is least."""
        depth = len(self.call.plan.layers)
        distance = math.ceil(math.sqrt(depth / (1 + self.call.cell.gates / 2)))
        return [*range(distance, depth, distance)]

    def _levels_with_memory(self) -> list[int]:
        """So far apart that the memories of those between find room where the gates above were.

        The lowest of them is as low as can be: the layers below, whose gates are made again too, need all the room.
        """
        plan, levels, level = self.call.plan, list[int](), len(self.call.plan.layers) - 1
        lowest = self.layers.start + 1  # one higher, because its hidden state is made from gates below it
        while level >= lowest:
            levels.insert(0, level)
            room = self.call.cell.gates * sum(layer.rows for layer in plan.layers[level:])
            level -= 1
            while level > lowest and room >= plan.levels[level].rows:
                room -= plan.levels[level].rows
                level -= 1
        return levels

    def _place(self, kind: str, i: int, rows: int, width: int) -> None:
        self.places.append((kind, i, self.size, rows, width))
        self.size += self._size_of(rows, width)

    def _size_of(self, rows: int, width: int) -> int:
        return aligned(rows * self.batch * width)

    def _remade_size(self, start: int, stop: int) -> int:
        """The room for what the way down makes again between two kept levels."""
        size, plan, remade = 0, self.call.plan, [i for i in range(start, stop) if i not in self.layers]
        if not self.call.recompute:
            size += sum(self._size_of(*shape) for shape in self.call.shared_products(remade).values())
        if start == 0 and self.call.first_level == 0:  # level 0 has a context
            size += self.tensors_a_level * self._size_of(plan.levels[0].rows, self.call.width)
        for i in range(start, stop):
            level = self._size_of(plan.levels[i + 1].rows, self.call.width)
            if i in remade:
                size += level + sum(self._size_of(plan.layers[i].rows, width) for width in self.call.gate_widths)
            if self.call.cell.has_memory and (i in remade or i + 1 not in self.levels):
                size += level
        return size

    def cut(self, buffer: Tensor) -> Kept:
        """The buffer as what is kept in it."""
        kept = Kept()
        for kind, i, start, rows, width in self.places:
            piece = buffer[start : start + rows * self.batch * width].view(rows, self.batch, width)
            if kind == "gates":
                kept.gates.setdefault(i, []).append(piece)
            else:
                getattr(kept, kind)[i] = piece
        return kept


class TwoLevels:
    """Storage for a walk through the levels, or their gradients: hidden states and memories of two levels at a time."""

    def __init__(self, keep: Keep, room: Room) -> None:
        self.levels, shapes = keep.call.plan.levels, [(rows, keep.batch, keep.call.width) for rows in keep.walk]
        self.hidden = [room.take(*shape) for shape in shapes]
        self.memory = [room.take(*shape) for shape in shapes] if keep.call.cell.has_memory else None

    def at(self, level: int) -> tuple[Tensor, Tensor | None]:
        """The hidden state and the memory of a level: (context + n, B, H) each."""
        rows, parity = self.levels[level].rows, level % 2
        return self.hidden[parity][:rows], None if self.memory is None else self.memory[parity][:rows]


_local = threading.local()  # each thread has at most one buffer to spare


def drop_buffer() -> Tensor | None:
    """Take the buffer to spare away from the thread."""
    spare: Tensor | None = _local.__dict__.pop("spare", None)
    return spare


def take_buffer(size: int, like: Tensor) -> Tensor:
    """A buffer of at least so many numbers: the one to spare, unless it is far too large, or a new one."""
    spare = drop_buffer()
    fits = spare is not None and size <= len(spare) <= 2 * size
    if spare is not None and fits and (spare.dtype, spare.device) == (like.dtype, like.device):
        return spare
    return like.new_empty(size)


def give_buffer(buffer: Tensor) -> None:
    """Let the next call have the buffer.

    From the system it would come page by page, which takes several percent of a training step. On other devices than a
    CPU torch itself keeps what is freed.
    """
    spare: Tensor | None = getattr(_local, "spare", None)
    if buffer.device.type == "cpu" and (spare is None or len(spare) < len(buffer)):
        _local.spare = buffer
