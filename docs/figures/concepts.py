"""The figures of the trellis itself: one cell, the grid, the cones."""

from __future__ import annotations

from draw import Drawing
from grid import Grid, plan_of, share


def overview() -> str:
    """For the README: the whole trellis, and what the last step needs of it."""
    drawing = Drawing("A trellis network, and the cells that its last output needs", 900, 424)
    steps, layers, bottom = 8, 5, 322
    for left, tail, title, call in (
        (116, None, "A trellis: all outputs", "net(x)"),
        (548, 1, "Its cone: only the last one", "net(x, tail=1)"),
    ):
        plan = plan_of(steps, tail, [1] * layers)
        middle = left + 3.5 * 44
        drawing.text(middle, 30, title, bold=True, size=16)
        drawing.text(middle, 54, call, "soft", code=True)
        Grid(left, bottom, 44, 46, 9.5).show(drawing, plan, steps, wanted=tail or steps)
        drawing.text(middle, bottom + 36, share(plan, steps), "soft")
    for level in range(1, layers + 1):
        drawing.text(82, bottom - 46 * level, f"layer {level}", "soft", 13, "end")
    drawing.text(82, bottom, "input", "orange", 13, "end")
    drawing.line((482, 84), (482, bottom + 10), "line")
    for x, tone, words in (
        (66, "blue", "the same kernel at every step of every layer"),
        (500, "orange", "the input, which enters every cell"),
    ):
        drawing.line((x, 396), (x + 26, 396), tone, 2.4)
        drawing.text(x + 36, 396, words, "ink", 14, "start")
    return drawing.svg()


def atom() -> str:
    """What one cell reads and writes."""
    drawing = Drawing("One cell of a trellis network", 800, 400)
    bottom, wide = 300, 104
    for x, words, tone in (
        (42, "c(i, t - 1)", "green"),
        (158, "h(i, t - 1)", "blue"),
        (274, "x(t - 1)", "orange"),
        (470, "h(i, t)", "blue"),
        (586, "x(t)", "orange"),
    ):
        if words in ("c(i, t - 1)", "h(i, t)"):  # the first of its step
            step, width = ("t - 1", 368) if tone == "green" else ("t", 252)
            drawing.box(x - 16, bottom - 16, width, 70, "pale", None, 10)
            drawing.text(x - 16 + width / 2, bottom + 74, f"step {step}", "soft", 13)
        drawing.box(x, bottom, wide, 38, f"{tone}-tint", tone)
        drawing.text(x + wide / 2, bottom + 19, words)
        if tone != "green":
            drawing.line((x + wide / 2, bottom), (x + wide / 2, 241), tone, arrow=True)

    drawing.box(158, 178, 532, 60, "paper", "ink")
    drawing.text(424, 198, "pre = W₁ [h(i, t - 1), x(t - 1)] + W₂ [h(i, t), x(t)] + b", size=15)
    drawing.text(424, 221, "the same W₁, W₂ and b at every step of every layer", "soft", 13)
    drawing.line((424, 178), (424, 145), "ink", arrow=True)
    drawing.box(314, 92, 220, 50, "paper", "ink")
    drawing.text(424, 108, "cell: the gates of an LSTM")
    drawing.text(424, 127, "or tanh, relu, gru, your own", "soft", 12)
    drawing.line((94, bottom), (311, 117), "green", arrow=True, bend=-56)
    drawing.text(146, 96, "the memory goes", "green", 13)
    drawing.text(146, 114, "past the kernel", "green", 13)

    for x, words, tone in ((316, "c(i + 1, t)", "green"), (428, "h(i + 1, t)", "blue")):
        drawing.box(x, 22, wide, 38, f"{tone}-tint", tone)
        drawing.text(x + wide / 2, 41, words)
        drawing.line((x + wide / 2, 92), (x + wide / 2, 63), tone, arrow=True)
    drawing.text(738, 41, "layer i + 1", "soft", 13)
    drawing.text(748, bottom + 10, "layer i", "soft", 13)
    drawing.text(748, bottom + 28, "and input", "soft", 13)
    return drawing.svg()


def grid() -> str:
    """The tied weights and the injected input, on a grid."""
    drawing = Drawing("The trellis: one kernel for all cells, the input in every layer", 800, 330)
    steps, layers, bottom = 8, 4, 256
    Grid(112, bottom, 54, 52, 11).show(drawing, plan_of(steps, None, [1] * layers), steps, wanted=steps, older="pink")
    for level in range(1, layers + 1):
        drawing.text(76, bottom - 52 * level, f"layer {level}", "soft", 13, "end")
    drawing.text(76, bottom, "input x", "orange", 13, "end")
    for step in range(steps):
        drawing.text(112 + 54 * step, bottom + 26, str(step + 1), "soft", 12)
    drawing.text(112 + 3.5 * 54, bottom + 48, "step", "soft", 12)
    drawing.circle((553, 50), 9, "blue", "blue")
    drawing.text(578, 50, "an output: the last layer", "ink", 13, "start")
    for y, tone, words in (
        (94, "blue", ("the newest tap, W₂", "in every layer the same")),
        (154, "pink", ("the older tap, W₁, in every", "layer the same; the cell's", "memory comes this way too")),
        (232, "orange", ("the input: it enters every", "layer, through the same taps")),
    ):
        drawing.line((540, y), (566, y), tone, 2.4)
        for i, part in enumerate(words):
            drawing.text(578, y + 19 * i, part, "ink", 13, "start")
    return drawing.svg()


def cones() -> str:
    """What is computed for the last outputs, with dilation 1."""
    drawing = Drawing("The cells that the last outputs need", 760, 302)
    steps, layers = 12, 5
    for left, tail in ((40, 1), (412, 4)):
        plan = plan_of(steps, tail, [1] * layers)
        middle = left + 5.5 * 28
        drawing.text(middle, 28, f"net(x, tail={tail})", code=True, size=15)
        Grid(left, 240, 28, 36, 7).show(drawing, plan, steps, wanted=tail, injected=False)
        drawing.text(middle, 276, share(plan, steps), "soft")
    return drawing.svg()


def dilated_cone() -> str:
    """What is computed for the last output, with dilations that double."""
    dilations = [1, 1, 2, 4, 8]
    steps, bottom = 20, 276
    drawing = Drawing("The cells that the last output needs, with dilations 1, 1, 2, 4, 8", 760, 342)
    plan = plan_of(steps, 1, dilations)
    Grid(116, bottom, 32, 42, 7.5).show(drawing, plan, steps, wanted=1, injected=False)
    for level, dilation in enumerate(dilations, 1):
        drawing.text(22, bottom - 42 * level, f"dilation {dilation}", "soft", 13, "start")
    drawing.text(22, bottom, "input", "orange", 13, "start")
    drawing.text(116 + 9.5 * 32, 28, "net(x, tail=1)", code=True, size=15)
    seen = len(plan.levels[0].steps)
    drawing.text(116 + 9.5 * 32, bottom + 38, f"{share(plan, steps)}; {seen} steps of the input are seen", "soft")
    return drawing.svg()
