"""Which cells of the trellis a question needs.

A trellis is a grid: layer i at step t reads the level below at steps t, t-d, ..., t-(K-1)d. Level 0 lies below the
first layer, level i+1 is what layer i writes. If only some steps of the last level are wanted, we walk down from
them and collect the steps each level must provide: a cone.

Each level is stored as rows: first the steps before the sequence (its left context), then the computed steps. The
computed steps are ordered so that the steps of the level above come last. Hence the newest tap, the input's
contribution, and the wanted steps are always the last rows of whatever they are taken from, and the older taps
are nearly always a slice as well.

Cones belong to the path of layers. The other two carry a memory or a state along time, so that a step needs all steps
before it: their plans are whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

Rows = slice | Tensor  # how to index a level: consecutive rows, or row numbers
RowsPerSequence = tuple[Tensor, Tensor]  # or other rows for each sequence: (rows, B), and the numbers of the sequences
AnyRows = Rows | RowsPerSequence
Lengths = tuple[int, ...] | Tensor  # the length of each sequence: numbers, or a tensor (B) of an exported program


@dataclass(frozen=True)
class Level:
    """The rows kept of one level: `context` are negative steps, `steps` the computed ones, in storage order."""

    context: Sequence[int]
    steps: Sequence[int]
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", len(self.context) + len(self.steps))


@dataclass(frozen=True)
class Layer:
    """Layer i of the grid: from which rows of level i each tap reads. It writes all steps of level i+1."""

    dilation: int
    taps: tuple[Rows, ...]  # the oldest first
    rows: int  # the number of steps it computes
    memory: Rows  # the rows that the cell's memory is read from: of level i, or with sweeps of level i+1

    @property
    def reads_neighbours(self) -> bool:
        """Whether there are two taps, and each step reads two rows next to each other."""
        older, newest = self.taps[-2:]
        consecutive = isinstance(older, slice) and isinstance(newest, slice) and newest.start == older.start + 1
        return consecutive and len(self.taps) == 2


@dataclass(frozen=True, eq=False)
class Plan:
    """The cells to compute, from level 0 (below the first layer) to the last."""

    levels: tuple[Level, ...]
    layers: tuple[Layer, ...]
    wanted: int  # the wanted steps are the last rows of every level
    whole: bool  # every step of every level, with full contexts: the state at the end is known
    spans: tuple[int, ...] = field(init=False)  # the number of context rows of each level

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", tuple(len(level.context) for level in self.levels))

    @property
    def cells(self) -> int:
        """The number of cells computed."""
        return sum(layer.rows for layer in self.layers)


def as_rows(rows: Sequence[int], device: torch.device | str | None = None) -> Rows:
    """A slice if the rows are consecutive, else an index tensor."""
    first, count = rows[0], len(rows)
    if isinstance(rows, range) or all(row == first + i for i, row in enumerate(rows)):
        return slice(first, first + count)
    return torch.tensor(rows, device=device)


def spans_of(dilations: Sequence[int], kernel_size: int, path: str, window: int = 1) -> tuple[int, ...]:
    """How many steps before the first one are read of each level: the rows of its context.

    `window` is the number of steps that attention sees, for nets with attention.
    """
    spans = [max((kernel_size - 1) * dilation, window - 1) for dilation in dilations]
    if path == "sweeps":  # layer i also reads level i+1, one dilation back
        spans[1:] = (max(both) for both in zip(spans[1:], dilations, strict=False))
    if path == "steps":  # all layers read the last level, whose context stands in the place of level 0's
        spans = [max(spans[:-1]), *(0 for _ in spans[1:])]
    return tuple(spans)


def whole_plan(length: int, dilations: Sequence[int], kernel_size: int, path: str = "layers", window: int = 1) -> Plan:
    """Every step of every layer."""
    spans = spans_of(dilations, kernel_size, path, window)
    levels = tuple(Level(range(-span, 0), range(length)) for span in spans)

    def rows(level: int, back: int) -> slice:
        first = spans[0 if path == "steps" else level] - back
        return slice(first, first + length)

    layers = tuple(
        Layer(
            dilation,
            tuple(rows(i, (kernel_size - 1 - j) * dilation) for j in range(kernel_size)),
            length,
            rows(i + 1 if path == "sweeps" else i, dilation),
        )
        for i, dilation in enumerate(dilations[:-1])
    )
    return Plan(levels, layers, length, whole=True)


def cone_plan(
    wanted: Sequence[int], dilations: Sequence[int], kernel_size: int, device: torch.device | str | None = None
) -> Plan:
    """Only the cells that the wanted steps of the last level reach."""
    levels = [Level((), wanted)]
    layers: list[Layer] = []
    for dilation in reversed(dilations[:-1]):
        steps = levels[0].steps
        read = [_shift(steps, (kernel_size - 1 - j) * dilation) for j in range(kernel_size)]
        level = _union(read)
        levels.insert(0, level)
        row = {step: i for i, step in enumerate((*level.context, *level.steps))}
        taps = tuple(as_rows([row[step] for step in tap], device) for tap in read)
        layers.insert(0, Layer(dilation, taps, len(steps), memory=taps[-2]))
    return Plan(tuple(levels), tuple(layers), len(wanted), whole=False)


def _shift(steps: Sequence[int], by: int) -> list[int]:
    return [step - by for step in steps]


def _union(read: list[list[int]]) -> Level:
    """All steps read: the contexts, then the steps only older taps read, then those of the newest tap."""
    newest = read[-1]
    seen = set(newest)
    context: list[int] = []
    older: list[int] = []
    for tap in read[:-1]:
        for step in tap:
            if step not in seen:
                seen.add(step)
                (context if step < 0 else older).append(step)
    return Level(tuple(context), (*older, *newest))


def make_plan(
    length: int,
    wanted: Sequence[int] | None,
    dilations: Sequence[int],
    kernel_size: int,
    device: torch.device | str | None = None,
    path: str = "layers",
    window: int = 1,
) -> Plan:
    """The plan for a sequence of n = `length` steps: the wanted steps only, or every step with the state at the end.

    `dilations` has one entry more than there are layers: the last is that of the last level's context.
    """
    if wanted is None or path != "layers":
        return whole_plan(length, dilations, kernel_size, path, window)
    return cone_plan(wanted, dilations, kernel_size, device)
