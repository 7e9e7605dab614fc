"""The figures of numbers: measurements of `benchmarks/results.json`, and receptive fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from trellisnet import TrellisNet
from trellisnet.training.reporting.drawing import LIGHT, chart

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
BESIDE: dict[str, Any] = {"textcoords": "offset points", "va": "center"}  # a label to the right of a point


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
    def fill(axes: Axes) -> None:
        for j, (contestant, (name, tone)) in enumerate(CONTESTANTS.items()):
            values = [rows[shape, contestant] for shape in SHAPES]
            bars = axes.barh([i + 0.17 * j for i in range(len(SHAPES))], values, 0.13, color=LIGHT[tone], label=name)
            axes.bar_label(bars, [_share(value) for value in values], padding=6)
        axes.set_yticks([i + 0.34 for i in range(len(SHAPES))], ["\n".join(words) for words in SHAPES.values()])
        axes.set_xticks([0.25, 0.5, 0.75, 1], ["0.25", "0.5", "0.75", "1"])
        axes.invert_yaxis()
        axes.grid(False, axis="y")
        axes.spines.bottom.set_visible(False)
        axes.figure.legend(loc="outside lower center", ncols=len(CONTESTANTS), handlelength=1, columnspacing=1.6)

    return chart(title, 760, 440, fill, alone=True)


def _share(value: float) -> str:
    return f"{value:.2g}" if value < 0.995 else f"{value:.2f}".rstrip("0").rstrip(".")


def streaming() -> str:
    """Time of one step of a stream, as dots, because the scale is logarithmic."""
    names = {
        "bare products": "its matrix-vector products alone",
        "step after 10": "TrellisNet, after 10 steps",
        "step after 4000": "TrellisNet, after 4,000 steps",
        "plain, 110 steps again": "plain, the last 110 steps again",
    }

    def fill(axes: Axes) -> None:
        for size, tone in (("700 x 58", "blue"), ("256 x 32", "orange")):
            times = {row["contestant"]: row["ms"] for row in results()["streaming"] if row["hidden x layers"] == size}
            label = "width {}, {} layers".format(*size.split(" x "))
            axes.plot([times[name] for name in names], range(len(names)), "o", color=LIGHT[tone], ms=10, label=label)
            for i, name in enumerate(names):
                axes.annotate(f"{times[name]:.3g}", (times[name], i), (11, 0), **BESIDE)
        axes.set(xscale="log", xlim=(0.25, 1000), ylim=(3.5, -0.5))
        axes.set_xticks([1, 10, 100], ["1 ms", "10 ms", "100 ms"])
        axes.set_xticks([], minor=True)
        axes.set_yticks(range(len(names)), list(names.values()))
        axes.figure.legend(loc="outside lower center", ncols=2)

    return chart("One step of a stream, batch 1 (log scale)", 760, 290, fill, alone=True)


def receptive_field() -> str:
    """How far back an output looks, by depth and dilations: what `net.receptive_field_at` says."""
    depths = range(1, 13)
    kinds: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("dilations 1, 1, 2, 4, 8, ...", "pink", {"dilation": [1, *(2**i for i in range(11))]}),
        ("dilations 1, 2, 4, 8, again", "green", {"dilation": [1, 2, 4, 8]}),
        ("kernel_size=3", "orange", {"kernel_size": 3}),
        ("kernel_size=2", "blue", {}),
    )

    def fill(axes: Axes) -> None:
        for name, tone, options in kinds:
            net = TrellisNet(1, 1, num_layers=len(depths), **options)
            fields = [net.receptive_field_at(depth) or 0 for depth in depths]
            axes.plot(depths, fields, "o-", color=LIGHT[tone], markersize=5)
            end = (depths[-1], fields[-1])
            axes.annotate(f"{fields[-1]:,}: {name}", end, (12, 0), color=LIGHT[tone], **BESIDE)
        axes.set_yscale("log", base=2)
        axes.set_yticks([4**i for i in range(6)], [f"{4**i:,}" for i in range(6)])
        axes.set_xticks(depths)
        axes.set(xlabel="layers", ylabel="steps")
        axes.grid(False, axis="x")

    return chart("How many steps an output sees", 760, 372, fill, alone=True)
