"""The figure of the three ways through the grid."""

from __future__ import annotations

from draw import Drawing
from grid import Cell, Grid

STEPS, LAYERS = 6, 3
PANELS = (
    ("layers", "the paper: from the layer below"),
    ("sweeps", "the memory runs along time"),
    ("steps", "from the final state of the step before"),
)


def paths() -> str:
    """Where a cell finds what lies before its step."""
    drawing = Drawing("Three ways through the grid", 940, 330)
    for number, (path, words) in enumerate(PANELS):
        left = 52 + 304 * number
        grid = Grid(left, 236, 46, 50, 10)
        middle = left + (STEPS - 1) * 23
        drawing.text(middle, 26, f'path="{path}"', code=True, size=15)
        drawing.text(middle, 48, words, "soft", 13)
        for level in range(1, LAYERS + 1):
            for step in range(STEPS):
                _reads(drawing, grid, path, (level, step))
        for level in range(1, LAYERS + 1):
            for step in range(STEPS):
                drawing.circle(grid.place((level, step)), 10, "blue" if level == LAYERS else "blue-tint", "blue")
        grid.inputs(drawing, range(STEPS), STEPS)
    for x, tone, name in ((70, "blue", "the newest tap"), (290, "pink", "the older tap"), (500, "green", "the memory")):
        drawing.line((x, 296), (x + 26, 296), tone, 2.4)
        drawing.text(x + 36, 296, name, "ink", 14, "start")
    drawing.text(672, 296, "the input enters every cell", "orange", 14, "start")
    return drawing.svg()


def _reads(drawing: Drawing, grid: Grid, path: str, cell: Cell) -> None:
    """The lines from what a cell reads; what all cells of a column read in the same way is drawn once per cell."""
    level, step = cell
    place = grid.place(cell)
    drawing.line(grid.place((level - 1, step)), place, "orange" if level == 1 else "blue", 1.3)
    if step == 0:
        return
    older = (LAYERS if path == "steps" else level - 1, step - 1)
    memory = {"layers": (level - 1, step - 1), "sweeps": (level, step - 1), "steps": older}[path]
    if older[0] > 0:
        drawing.line(grid.place(older), place, "pink", 1.3)
    if memory[0] > 0:
        beside = 0.0 if path == "sweeps" else 3.0  # next to the older tap's line
        (x1, y1), (x2, y2) = grid.place(memory), place
        drawing.line((x1, y1 + beside), (x2, y2 + beside), "green", 1.3 if beside else 2.4)
