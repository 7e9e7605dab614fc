"""The figure of a trellis layer as an attention layer."""

from __future__ import annotations

from draw import Drawing

STEPS, NULLS = 5, 2
HEADS = (
    ("head 1", "lag 2", "W₁", "pink", 2),
    ("head 2", "lag 1", "W₂", "pink", 1),
    ("head 3", "lag 0", "W₃", "blue", 0),
)
MEMORY = ("memory", "lag 1", "identity", "green", 1)


def attention() -> str:
    """A layer with three taps as attention heads, and where each head looks."""
    drawing = Drawing("A trellis layer with three taps is an attention layer with three heads", 940, 400)
    drawing.text(250, 26, "one layer, at step t", bold=True, size=15)
    drawing.text(716, 26, "where the heads look", bold=True, size=15)
    _layer(drawing)
    for number, head in enumerate((*HEADS, MEMORY)):
        _matrix(drawing, 540 + 208 * (number % 2), 66 + 162 * (number // 2), head)
    return drawing.svg()


def _layer(drawing: Drawing) -> None:
    """The tokens below, a box per head, their sum, and the cell."""
    places = {lag: 444 - 96 * lag for lag in range(5)}
    for lag, x in places.items():
        null = lag > 3
        words = "null" if null else "u(t)" if lag == 0 else f"u(t - {lag})"
        drawing.box(x - 38, 316, 76, 34, "paper" if null else "blue-tint", "soft" if null else "blue", dashed=null)
        drawing.text(x, 333, words, "soft" if null else "ink", 13)
    words = "tokens u = [h, x] of the layer below; before the start, null tokens of value zero"
    drawing.text(252, 374, words, "soft", 11.5)
    boxes = {"head 1": 214, "head 2": 310, "head 3": 406, "memory": 112}
    for name, _, value, tone, lag in (*HEADS, MEMORY):
        x = boxes[name]
        drawing.line((places[lag], 316), (x, 247), tone, 1.8, arrow=True)
        drawing.box(x - 42, 204, 84, 42, f"{tone}-tint", tone)
        drawing.text(x, 217, name, size=13)
        drawing.text(x, 234, f"value map {value}" if value != "identity" else "identity", "soft", 10.5)
        if name != "memory":
            drawing.line((x, 204), (310, 165), tone, 1.8, arrow=True)
    drawing.box(216, 130, 188, 34, "paper", "ink")
    drawing.text(310, 147, "sum + b: pre-activations", size=13)
    drawing.line((310, 130), (310, 101), "ink", arrow=True)
    drawing.box(196, 58, 228, 42, "paper", "ink")
    drawing.text(310, 72, "the cell f", size=14)
    drawing.text(310, 89, "in the place of the feed-forward part", "soft", 11)
    drawing.line((112, 204), (193, 79), "green", 1.8, arrow=True, bend=-22)


def _matrix(drawing: Drawing, left: float, top: float, head: tuple[str, str, str, str, int]) -> None:
    """The attention of one head: a row per query, a column per key, the null tokens first."""
    name, lag_words, _, tone, lag = head
    size = 19
    drawing.text(left + (STEPS + NULLS) * size / 2, top - 12, f"{name}, {lag_words}", tone, 13)
    for query in range(STEPS):
        for column in range(STEPS + NULLS):
            chosen = column - NULLS == query - lag
            stroke = "line" if column >= NULLS else "soft"
            x, y = left + column * size, top + query * size
            drawing.box(x, y, size - 3, size - 3, tone if chosen else "paper", stroke, 2, dashed=column < NULLS)
    drawing.text(left - 10, top + STEPS * size / 2 - 2, "t", "soft", 12, "end")
    drawing.text(left + (NULLS - 0.1) * size / 2, top + STEPS * size + 10, "null", "soft", 11)
    drawing.text(left + (NULLS + STEPS / 2) * size, top + STEPS * size + 10, "steps", "soft", 11)
