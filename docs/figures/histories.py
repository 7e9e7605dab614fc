"""The figures of what a trellis continues: left contexts, and an LSTM inside a trellis."""

from __future__ import annotations

from draw import Drawing
from grid import Cell, Grid, cells, plan_of, reads

LAYERS, NEW, OLD = 4, 6, 2


def left_contexts() -> str:
    """Zeros, carried and repackaged contexts, and which cells differ from those of one long run."""
    drawing = Drawing("What every layer sees before the first step", 800, 356)
    cases = (
        ("a sequence begins", "net(x)", "zeros on the left", "nothing came before"),
        ("it goes on: carried", "net(x, state)", "each layer's own last step", "equal to one long run"),
        (
            "the paper's: repackaged",
            "net(x, state.repackage())",
            "the last layer's last step for all",
            "pink: differs from one long run",
        ),
    )
    for case, (title, call, *words) in enumerate(cases):
        middle = 134 + 266 * case
        drawing.text(middle, 28, title, bold=True, size=15)
        drawing.text(middle, 52, call, "soft", 12.5, code=True)
        _context(drawing, Grid(middle - 48, 268, 26, 42, 6.5), case)
        drawing.text(middle, 308, words[0], "soft", 13)
        drawing.text(middle, 328, words[1], "pink" if case == 2 else "soft", 13)
        if case:
            drawing.line((middle - 133, 80), (middle - 133, 330), "line")
    return drawing.svg()


def _context(drawing: Drawing, place: Grid, case: int) -> None:
    plan = plan_of(NEW, None, [1] * LAYERS)
    wrong = _from_context(list(reads(plan))) if case == 2 else set()
    for reader, read in reads(plan):
        if read[1] >= 0 or case > 0:
            below_first = read[0] == 0 and not (case == 2 and read[1] < 0)
            tone = "orange" if below_first else "pink" if reader in wrong else "blue"
            drawing.line(place.place(read), place.place(reader), tone, 1.2)
    for level in range(0 if case == 2 else 1, LAYERS + 1):
        x, y = place.place((level, -1))
        if case == 0:
            drawing.text(x, y, "0", "soft", 13)
            continue
        for step in range(-OLD, 0):
            used = step == -1 and (case == 1 or level == LAYERS)
            if level or step == -1:
                fill, stroke = ("green", "green") if used else ("pale", "line")
                drawing.circle(place.place((level, step)), place.radius, fill, stroke)
        if case == 2 and level < LAYERS:
            above = place.place((level + 1, -1))
            drawing.line((x, above[1] + place.radius), (x, y - place.radius), "green", 1.6, arrow=True)
    for cell in sorted(cells(plan)):
        tone = "pink" if cell in wrong else "blue"
        drawing.circle(place.place(cell), place.radius, tone + "-tint", tone)
    place.inputs(drawing, range(NEW), NEW)
    if case == 1:  # the last input is carried too
        x, y = place.place((0, -1))
        size = place.radius * 1.5
        drawing.box(x - size / 2, y - size / 2, size, size, "green", "green", radius=2)


def _from_context(plan_reads: list[tuple[Cell, Cell]]) -> set[Cell]:
    """The cells that a context reaches, the one below the first layer included: as `repackage` fills it too."""
    reached: set[Cell] = set()
    for reader, read in plan_reads:
        if read[1] < 0 or read in reached:
            reached.add(reader)
    return reached


def lstm() -> str:
    """An LSTM of two layers as a trellis of four: what each group of channels holds, and the kernel."""
    drawing = Drawing("An LSTM of two layers inside a trellis network (theorem 1)", 880, 440)
    across, up, wide, high = 118, 84, 40, 34
    left, bottom, steps, levels = 138, 370, 4, 4

    def centre(level: int, step: int, group: int) -> tuple[float, float]:
        """The middle of a group's box; group 0 is the input."""
        x, y = left + step * across, bottom - level * up
        return (x, y) if group == 0 else (x + (-22 if group == 1 else 22), y)

    for level in range(1, levels + 1):
        for step in range(steps):
            for group, tone in ((1, "blue"), (2, "green")):
                x, y = centre(level, step, group)
                if level < group:
                    continue
                if step > 0 and level > group:  # its own past
                    older = centre(level - 1, step - 1, group)
                    drawing.line((older[0], older[1] - high / 2), (x, y + high / 2), tone, 1.6)
                below = centre(0, step, 0) if group == 1 and level == 1 else centre(level - 1, step, 1)
                if group == 2 or level == 1:
                    start = (below[0], below[1] - high / 2)
                    drawing.line(start, (x, y + high / 2), "orange" if level == 1 else "blue", 1.6)
                elif group == 1:
                    drawing.line((x - wide / 2 - 11, y), (x - wide / 2, y), "orange", 2.2)
    for level in range(levels + 1):
        words = f"layer {level}" if level else "input"
        drawing.text(70, bottom - level * up, words, "soft" if level else "orange", 13, "end")
        for step in range(steps):
            if level == 0:
                x, y = centre(0, step, 0)
                drawing.box(x - 30, y - high / 2, 60, high, "orange-tint", "orange")
                drawing.text(x, y, f"x({step + 1})")
                continue
            for group, tone in ((1, "blue"), (2, "green")):
                x, y = centre(level, step, group)
                read = min(level - group + 1, step + 1)
                last = level == levels and group == 2
                fill, stroke = (tone if last else f"{tone}-tint", tone) if read > 0 else ("paper", "line")
                drawing.box(x - wide / 2, y - high / 2, wide, high, fill, stroke, radius=4, dashed=read <= 0)
                drawing.text(x, y, str(read), "paper" if last else "ink" if read > 0 else "soft", bold=last)
    drawing.text(left + 1.5 * across, 414, "a number: how many inputs the LSTM has read there", "soft", 13)
    _kernel(drawing, 604, 58)
    return drawing.svg()


def _kernel(drawing: Drawing, left: float, top: float) -> None:
    """The two taps of the mixed-group kernel as blocks of a matrix."""
    size = 50
    taps = (
        ("W₁, the older tap", {(0, 1): ("hh 1", "blue"), (1, 2): ("hh 2", "green")}),
        ("W₂, the newest tap", {(0, 0): ("ih 1", "orange"), (1, 1): ("ih 2", "blue")}),
    )
    groups = (("x", "orange"), ("group 1", "blue"), ("group 2", "green"))
    for i, (title, blocks) in enumerate(taps):
        x, y = left + 84, top + i * 164
        drawing.text(x + 1.5 * size, y - 28, title, bold=True)
        drawing.box(x, y + 4, 3 * size, 2 * size, "paper", "line", radius=0)
        for row, column in [(row, column) for row in range(2) for column in range(3)]:
            place = x + column * size, y + 4 + row * size
            words, tone = blocks.get((row, column), ("0", "soft"))
            if words != "0":
                drawing.box(*place, size, size, f"{tone}-tint", tone, radius=0)
            drawing.text(place[0] + size / 2, place[1] + size / 2, words, "soft" if words == "0" else "ink", 13)
        for j, (name, tone) in enumerate(groups):
            drawing.text(x + (j + 0.5) * size, y - 7, name, tone, 11.5)
            if j:
                drawing.text(x - 8, y + 4 + (j - 0.5) * size, name, tone, 11.5, "end")
    drawing.text(left + 4, top + 298, "group 1 is the LSTM's first layer,", "soft", 13, "start")
    drawing.text(left + 4, top + 317, "group 2 its second, which starts", "soft", 13, "start")
    drawing.text(left + 4, top + 336, "one layer of the trellis later", "soft", 13, "start")
