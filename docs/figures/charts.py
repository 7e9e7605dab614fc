"""The figures of numbers: measurements of `benchmarks/results.json`, and receptive fields."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

from draw import Drawing
from trellisnet import TrellisNet

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results.json"
SHAPES = {
    "pixels": ("pixels", "width 130, 11 layers, 784 steps", "batch 64, tail=1, dilations to 512"),
    "words": ("words", "width 700, 58 layers, 110 steps", "batch 4, tail=52"),
    "full": ("full outputs", "width 600, 40 layers, 128 steps", "batch 8"),
}
CONTESTANTS = {
    "plain": ("plain trellis", "soft"),
    "store": ("TrellisNet", "blue"),
    "recompute": ("TrellisNet, recompute", "green"),
    "lstm": ("nn.LSTM", "orange"),
    "tcn": ("TCN", "pink"),
}


def results() -> dict[str, Any]:
    """What `make bench` wrote."""
    content: dict[str, Any] = json.loads(RESULTS.read_text())
    return content


def training() -> str:
    """Time of a training step."""
    rows = {(row["shape"], row["contestant"]): 1 / row["speedup"] for row in results()["training"]}
    return _bars("Time of a training step, as a share of the plain trellis network's", rows)


def memory() -> str:
    """Memory of a training step."""
    rows = {(row["shape"], row["contestant"]): row["of plain"] for row in results()["memory"]}
    return _bars("Memory of a training step, as a share of the plain trellis network's", rows)


def _bars(title: str, rows: dict[tuple[str, str], float]) -> str:
    drawing = Drawing(title, 760, 428)
    drawing.text(380, 26, title, bold=True, size=15)
    left, right, top, bottom = 262, 690, 86, 394

    def place(value: float) -> float:
        return left + (right - left) * value / 1.1

    x = 80.0
    for name, tone in CONTESTANTS.values():
        drawing.box(x, 48, 12, 12, tone, None, 2)
        drawing.text(x + 19, 54, name, "ink", 12.5, "start")
        x += 52 + 7.4 * len(name)
    for tick in (0.25, 0.5, 0.75, 1):
        drawing.line((place(tick), top - 8), (place(tick), bottom), "edge", 1)
        drawing.text(place(tick), bottom + 14, f"{tick:g}", "soft", 12)
    for i, (shape, words) in enumerate(SHAPES.items()):
        y = top + i * 106
        drawing.text(24, y + 22, words[0], bold=True, anchor="start")
        drawing.text(24, y + 43, words[1], "soft", 12, "start")
        drawing.text(24, y + 60, words[2], "soft", 12, "start")
        for j, (contestant, (_, tone)) in enumerate(CONTESTANTS.items()):
            value = rows[shape, contestant]
            drawing.box(left, y + 19 * j, place(value) - left, 14, tone, None, 2)
            drawing.text(place(value) + 6, y + 19 * j + 7, _share(value), "ink", 12, "start")
    drawing.line((left, top - 8), (left, bottom), "soft", 1.2)
    return drawing.svg()


def _share(value: float) -> str:
    return f"{value:.2g}" if value < 0.995 else f"{value:.2f}".rstrip("0").rstrip(".")


def streaming() -> str:
    """Time of one step of a stream, as dots, because the scale is logarithmic."""
    title = "One step of a stream, batch 1 (log scale)"
    drawing = Drawing(title, 760, 300)
    drawing.text(380, 26, title, bold=True, size=15)
    names = {
        "bare products": ("its matrix-vector products alone", "soft"),
        "step after 10": ("TrellisNet, after 10 steps", "blue"),
        "step after 4000": ("TrellisNet, after 4,000 steps", "blue"),
        "plain, 110 steps again": ("plain, the last 110 steps again", "orange"),
    }
    left, right, lowest, highest = 344, 700, 0.25, 700.0

    def place(value: float) -> float:
        return left + (right - left) * math.log(value / lowest) / math.log(highest / lowest)

    for tick in (1, 10, 100):
        drawing.line((place(tick), 50), (place(tick), 266), "edge", 1)
        drawing.text(place(tick), 281, f"{tick} ms", "soft", 12)
    for i, row in enumerate(results()["streaming"]):
        y = 64 + 24 * i + (14 if i >= len(names) else 0)
        if i % len(names) == 0:
            width, layers = row["hidden x layers"].split(" x ")
            drawing.text(24, y, f"width {width}", bold=True, anchor="start", size=13)
            drawing.text(24, y + 19, f"{layers} layers", "soft", 12, "start")
        words, tone = names[row["contestant"]]
        drawing.text(left - 12, y, words, "ink", 12.5, "end")
        drawing.line((left, y), (right, y), "pale", 1)
        drawing.circle((place(row["ms"]), y), 6, tone, tone)
        drawing.text(place(row["ms"]) + 12, y, f"{row['ms']:.3g}", "ink", 12, "start")
    return drawing.svg()


def receptive_field() -> str:
    """How far back an output looks, by depth and dilations: what `net.receptive_field_at` says."""
    title = "How many steps an output sees"
    drawing = Drawing(title, 760, 372)
    drawing.text(380, 26, title, bold=True, size=15)
    left, right, top, bottom, depths = 84, 500, 52, 314, range(1, 13)
    kinds: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("dilations 1, 1, 2, 4, 8, ...", "pink", {"dilation": [1, *(2**i for i in range(11))]}),
        ("dilations 1, 2, 4, 8, again", "green", {"dilation": [1, 2, 4, 8]}),
        ("kernel_size=3", "orange", {"kernel_size": 3}),
        ("kernel_size=2", "blue", {}),
    )

    def place(depth: int, steps: float) -> tuple[float, float]:
        x = left + (right - left) * (depth - 1) / (len(depths) - 1)
        return x, bottom - (bottom - top) * math.log2(steps) / 11.2

    for power in range(0, 12):
        y = place(1, 2**power)[1]
        drawing.line((left, y), (right, y), "edge", 1)
        if power % 2 == 0:
            drawing.text(left - 10, y, f"{2**power:,}", "soft", 12, "end")
    for depth in depths:
        drawing.text(place(depth, 1)[0], bottom + 16, str(depth), "soft", 12)
    drawing.text((left + right) / 2, bottom + 38, "layers", "soft", 13)
    for name, tone, options in kinds:
        net = TrellisNet(1, 1, num_layers=len(depths), **options)
        places = [place(depth, net.receptive_field_at(depth)) for depth in depths]
        for start, end in pairwise(places):
            drawing.line(start, end, tone, 2)
        for each in places:
            drawing.circle(each, 3.4, tone, tone)
        field = net.receptive_field_at(len(depths))
        drawing.text(right + 14, places[-1][1], f"{field:,}: {name}", tone, 13, "start")
    return drawing.svg()
