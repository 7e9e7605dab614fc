"""What lives where: what a call keeps for its backward pass, and the working memory of the walks.

What is kept is one buffer, and the workspace another, because dozens of tensors leave holes in the heap.

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

import torch
from torch import Tensor

from trellisnet.core.call import Call, Injections
from trellisnet.core.engine.tiles import Tiling
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
    """What of a call is kept, and where in its buffer."""

    def __init__(self, call: Call) -> None:
        depth, gates, has_memory = call.depth, call.cell.gates, call.cell.has_memory
        # kept levels are so far apart that they and one segment between two of them are least in sum
        distance = math.ceil(math.sqrt(depth / (1 + gates / 2) if call.recompute else depth))
        levels = range(distance, depth, distance) if call.recompute or has_memory else ()
        self.segments = list(pairwise([0, *levels, depth]))  # (first layer, last layer + 1)
        self.batch, self.size = call.batch, 0  # the size of all that is kept
        self._places: list[tuple[str, int, int, int, int]] = []  # what, of which level or layer, start, rows, width
        for level in levels:
            for kind in ("hidden",) * call.recompute + ("memory",) * has_memory:
                self._place(kind, level, call.plan.levels[level].rows, call.width)
        for i, layer in enumerate(call.plan.layers if not call.recompute else ()):
            for width in call.gate_widths:
                self._place("gates", i, layer.rows, width)
        self.workspace = max(self._rehearse(call, going_up) for going_up in (True, False))

    def _rehearse(self, call: Call, going_up: bool) -> int:
        """The size of the workspace of a walk."""
        workspace = Workspace(call, torch.empty(0, device="meta", dtype=call.dtype), going_up)
        for start, stop in self.segments if not going_up else ():
            workspace.segment(start, stop)
        return workspace.most

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


class Workspace:
    """The working memory of a walk: parts of one tensor while it lasts, then new memory. Any content."""

    def __init__(self, call: Call, free: Tensor, going_up: bool) -> None:
        self.call, self.free, self.used, self.most = call, free, 0, 0
        injections, tiling = call.derive(Injections), call.derive(Tiling)
        lengths, width = injections.lengths if injections.shared else [], call.gate_widths[0]
        runs_layers = going_up or call.recompute
        self.injected = [self._take(rows, width) for rows in lengths] if runs_layers else []
        self.grad_injected = [self._take(rows, width) for rows in lengths] if not going_up else []
        if any(tiling.paired):
            half = (tiling.rows + 1) // 2
            self.factors = [self._take(half) for _ in range(3)]
            self.shared = self._take(half, width) if runs_layers else None
        self.levels = self._two_levels()
        self.gates = [self._take(tiling.rows, width) for width in call.gate_widths] if going_up else []
        # a sweep reads its memories again one step later, so that gradients must not overwrite them
        swept = call.path == "sweeps" and not going_up
        self.scratch = self._take(tiling.rows) if swept else None
        self.hidden = None  # one hidden state at a time that is recomputed from gates
        if not runs_layers:
            self.hidden = self._take(max(level.rows for level in call.plan.levels[1:]))
        self._first_free = self.used  # from here on, one segment overwrites the other

    def segment(self, start: int, stop: int) -> tuple[dict[int, Level], dict[int, list[Tensor]]]:
        """Storage for the levels above layers start..stop-1 and, where those are run again, for their gates."""
        self.used, plan, recompute = self._first_free, self.call.plan, self.call.recompute
        levels = {i + 1: self._level(plan.levels[i + 1].rows, recompute) for i in range(start, stop)}
        if start == 0 and not self.call.zero_below:
            levels[0] = self._level(plan.levels[0].rows)
        gates = {}
        for i in range(start, stop) if recompute else ():
            gates[i] = [self._take(plan.layers[i].rows, width) for width in self.call.gate_widths]
        return levels, gates

    def _two_levels(self) -> list[Level]:
        """Storage for every level, in two places that take turns: a walk needs two levels at a time."""
        rows = [0 if i == 0 and self.call.zero_below else level.rows for i, level in enumerate(self.call.plan.levels)]
        places = [self._level(max(rows[parity::2])) for parity in range(2)]
        return [Level(*(None if z is None else z[:n] for z in places[i % 2])) for i, n in enumerate(rows)]

    def _level(self, rows: int, with_hidden: bool = True) -> Level:
        return Level(self._take(rows) if with_hidden else None, self._take(rows) if self.call.cell.has_memory else None)

    def _take(self, rows: int, width: int | None = None) -> Tensor:
        """A tensor (rows, B, width); by default as wide as the net."""
        shape = rows, self.call.batch, width or self.call.width
        size, start = math.prod(shape), self.used
        self.used += aligned(size)
        self.most = max(self.most, self.used)
        if self.used > len(self.free):
            return self.free.new_empty(shape)
        return self.free[start : start + size].view(shape)


def aligned(size: int) -> int:
    """The size rounded up, so that what follows begins at a cache line."""
    return -(-size // 16) * 16


_local = threading.local()  # each thread keeps at most one buffer of a kind for its next call


def take_buffer(kind: str, size: int, like: Tensor) -> Tensor:
    """A buffer of at least n numbers: the spare one of this kind, unless it is far too large, or a new one."""
    spare = drop_buffer(kind)
    if spare is None or not size <= len(spare) <= 2 * size or (spare.dtype, spare.device) != (like.dtype, like.device):
        return like.new_empty(size)
    return spare


def give_buffer(kind: str, buffer: Tensor) -> None:
    """Keep a buffer for the next call: the system gives new memory page by page, up to a quarter of a step's time.

    On other devices than a CPU torch itself keeps what is freed.
    """
    spare: Tensor | None = _local.__dict__.get(kind)
    if buffer.device.type == "cpu" and (spare is None or len(spare) < len(buffer)):
        _local.__dict__[kind] = buffer


def drop_buffer(kind: str) -> Tensor | None:
    """Take the spare buffer of this kind away from the thread."""
    spare: Tensor | None = _local.__dict__.pop(kind, None)
    return spare
