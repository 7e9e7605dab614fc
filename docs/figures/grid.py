"""A trellis as a grid of cells, drawn from the plan that the engine computes by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from draw import Drawing
from trellisnet.core.plan import Plan, Rows, make_plan

Cell = tuple[int, int]  # level, step


def plan_of(steps: int, tail: int | None, dilations: Sequence[int], kernel_size: int = 2) -> Plan:
    """What `net(x, tail=tail)` computes of `steps` steps; the state's own level is added as the net does."""
    wanted = None if tail is None else range(steps - tail, steps)
    return make_plan(steps, wanted, (*dilations, dilations[0]), kernel_size, torch.device("cpu"))


def cells(plan: Plan) -> set[Cell]:
    """The cells that a plan computes; levels count from 1."""
    return {(i, step) for i, level in enumerate(plan.levels) if i for step in level.steps}


def reads(plan: Plan) -> Iterator[tuple[Cell, Cell]]:
    """Which cell reads which of the level below, as (reader, read); level 0 is below the first layer."""
    for i, layer in enumerate(plan.layers):
        below = (*plan.levels[i].context, *plan.levels[i].steps)
        for tap in layer.taps:
            for reader, row in zip(plan.levels[i + 1].steps, _numbers(tap), strict=True):
                yield (i + 1, reader), (i, below[row])


def _numbers(rows: Rows) -> list[int]:
    return list(range(rows.start, rows.stop)) if isinstance(rows, slice) else rows.tolist()


def share(plan: Plan, steps: int) -> str:
    """How many cells of the whole grid are computed, in words."""
    whole = steps * len(plan.layers)
    return f"{plan.cells} of {whole} cells ({plan.cells / whole:.0%})"


@dataclass(frozen=True)
class Grid:
    """Where the cells of a trellis are in a drawing.

    Args:
        left: where step 0 is.
        bottom: where level 0 is.
        across: from step to step.
        up: from level to level.
        radius: of a cell.
    """

    left: float
    bottom: float
    across: float
    up: float
    radius: float

    def place(self, cell: Cell) -> tuple[float, float]:
        """The middle of a cell."""
        level, step = cell
        return self.left + step * self.across, self.bottom - level * self.up

    def inputs(self, drawing: Drawing, steps: Sequence[int], all_steps: int) -> None:
        """The input's steps, as squares below the grid; those that are read are full."""
        size = self.radius * 1.5
        for step in range(all_steps):
            x, y = self.place((0, step))
            fill, stroke = ("orange", "orange") if step in steps else ("paper", "line")
            drawing.box(x - size / 2, y - size / 2, size, size, fill, stroke, radius=2)

    def show(
        self,
        drawing: Drawing,
        plan: Plan,
        steps: int,
        wanted: int = 0,
        injected: bool = True,
        older: str = "blue",
    ) -> None:
        """All cells of a grid: those of the plan full, with what they read; the others empty.

        Args:
            drawing: where.
            plan: which cells are computed.
            steps: of the grid.
            wanted: how many of the last outputs are shown as such.
            injected: mark where the input enters above the first layer.
            older: tone of the older taps' lines.
        """
        computed, size = cells(plan), len(plan.layers)
        for level in range(1, size + 1):
            for step in range(steps):
                if (level, step) not in computed:
                    drawing.circle(self.place((level, step)), self.radius, "paper", "line")
        for reader, read in reads(plan):
            if read[1] >= 0:
                tone = "orange" if read[0] == 0 else "blue" if read[1] == reader[1] else older
                drawing.line(self.place(read), self.place(reader), tone, width=1.3)
        for level, step in sorted(computed):
            x, y = self.place((level, step))
            if injected and level > 1:  # below the first layer, the input's lines are drawn
                drawing.line((x - 2.1 * self.radius, y), (x - self.radius, y), "orange", 2)
            last = level == size and step >= steps - wanted
            drawing.circle((x, y), self.radius, "blue" if last else "blue-tint", "blue")
        read_steps = sorted({step for (_, (level, step)) in reads(plan) if level == 0 and step >= 0})
        self.inputs(drawing, read_steps, steps)
