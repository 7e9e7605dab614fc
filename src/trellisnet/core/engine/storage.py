"""What lives where: what a call keeps for its backward pass, and the working memory of the walks.

All of it is one buffer, because dozens of tensors leave holes in the heap. The kept part comes first, scratch after it.

To store is to keep the gates of all layers. Memories are kept at a few levels only: the backward pass recomputes those
between from the gates, one segment at a time, and hidden states one level at a time. To recompute is to keep
hidden states and memories at a few levels, and to run the layers between again.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeVar

from torch import Tensor

from trellisnet.core.call import Call
from trellisnet.core.plan import AnyRows, Rows

T = TypeVar("T", bound=Tensor | None)


class Level(NamedTuple):
    """The states of one level in storage, or their gradients: (context + n, B, H) each."""

    h: Tensor | None  # None: zeros
    c: Tensor | None  # None: zeros, or the cell has no memory


def part_of(states: T, rows: Rows, channels: slice) -> T:
    """Some rows and channels of a level: a view, if the rows are a slice."""
    return None if states is None else states[rows][..., channels]  # type: ignore[return-value]


def add_to(target: Tensor, rows: AnyRows, values: Tensor) -> None:
    """Compute `target[rows] += values`, for a slice without a copy. No row occurs twice."""
    if isinstance(rows, slice):
        target[rows].add_(values)
    else:
        target[rows] += values


@dataclass
class Kept:
    """What the backward pass finds: of some levels the states, of some layers the gates, one tensor per block."""

    hidden: dict[int, Tensor] = field(default_factory=dict)
    memory: dict[int, Tensor] = field(default_factory=dict)
    gates: dict[int, list[Tensor]] = field(default_factory=dict)


class Layout:
    """Where in the buffer of a call everything is kept."""

    def __init__(self, call: Call) -> None:
        depth, gates, has_memory = call.depth, call.cell.gates, call.cell.has_memory
        # kept levels are so far apart that they and one segment between two of them are least in sum
        distance = math.ceil(math.sqrt(depth / (1 + gates / 2) if call.recompute else depth))
        levels = range(distance, depth, distance) if call.recompute or has_memory else ()
        self.segments = list(pairwise([0, *levels, depth]))  # (first layer, last layer + 1)
        self.batch, self.size = call.batch, 0
        self.scratch = 0  # working memory that earlier calls of this form took
        self._places: list[tuple[str, int, int, int, int]] = []  # what, of which level or layer, start, rows, width
        for level in levels:
            for kind in ("hidden",) * call.recompute + ("memory",) * has_memory:
                self._place(kind, level, call.plan.levels[level].rows, call.width)
        for i, layer in enumerate(call.plan.layers if not call.recompute else ()):
            for width in call.gate_widths:
                self._place("gates", i, layer.rows, width)

    def _place(self, kind: str, i: int, rows: int, width: int) -> None:
        self._places.append((kind, i, self.size, rows, width))
        self.size += aligned(rows * self.batch * width)

    def cut(self, buffer: Tensor) -> Kept:
        """The kept tensors as parts of the buffer."""
        kept = Kept()
        for kind, i, start, rows, width in self._places:
            piece = buffer[start : start + rows * self.batch * width].view(rows, self.batch, width)
            if kind == "gates":
                kept.gates.setdefault(i, []).append(piece)
            else:
                getattr(kept, kind)[i] = piece
        return kept


class Scratch:
    """Working memory: parts of one tensor while it lasts, then new memory. `most` is the most that was in use."""

    def __init__(self, free: Tensor) -> None:
        self.free, self.used, self.most = free, 0, 0

    def take(self, *shape: int) -> Tensor:
        """A tensor of this shape, with any content."""
        size, start = math.prod(shape), self.used
        self.used += aligned(size)
        self.most = max(self.most, self.used)
        if self.used > len(self.free):
            return self.free.new_empty(shape)
        return self.free[start : start + size].view(shape)


def aligned(size: int) -> int:
    """The size rounded up, so that what follows begins at a cache line."""
    return -(-size // 16) * 16


_local = threading.local()  # each thread keeps at most one buffer for its next call


def take_buffer(layout: Layout, like: Tensor) -> Tensor:
    """A buffer for a call: the spare one if it fits and is not far too large, or a new one."""
    size, spare = layout.size + layout.scratch, drop_buffer()
    if spare is None or not size <= len(spare) <= 2 * size or (spare.dtype, spare.device) != (like.dtype, like.device):
        return like.new_empty(size)
    return spare


def give_buffer(buffer: Tensor) -> None:
    """Keep a buffer for the next call: the system gives new memory page by page, a fifth of a training step's time.

    On other devices than a CPU torch itself keeps what is freed.
    """
    spare: Tensor | None = getattr(_local, "spare", None)
    if buffer.device.type == "cpu" and (spare is None or len(spare) < len(buffer)):
        _local.spare = buffer


def drop_buffer() -> Tensor | None:
    """Take the spare buffer away from the thread."""
    spare: Tensor | None = _local.__dict__.pop("spare", None)
    return spare


def two_levels(call: Call, scratch: Scratch) -> list[Level]:
    """Storage for a walk, which needs two levels at a time: of every level, rows of one of two places."""
    places = []
    for levels in (call.plan.levels[::2], call.plan.levels[1::2]):
        shape = (max(level.rows for level in levels), call.batch, call.width)
        places.append(Level(scratch.take(*shape), scratch.take(*shape) if call.cell.has_memory else None))
    return [
        Level(*(None if place is None else place[: level.rows] for place in places[i % 2]))
        for i, level in enumerate(call.plan.levels)
    ]
