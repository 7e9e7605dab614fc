"""The figures of one set of weights at every depth: measurements of `benchmarks/depths.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from charts import BESIDE, results
from trellisnet.training.reporting.drawing import LIGHT, chart

RESULTS = Path(__file__).parents[2] / "benchmarks" / "depths.json"
VISIBLE = {"\n": "↵", "_": " "}  # a blank is `_` in the corpus
TONES = {"sweeps": "blue", "steps": "green", "layers": "orange"}
MOST_BITS = 2.5  # worse points would leave no room for the others
DEPTHS = (1, 2, 4, 8, 16, 32)


def measured() -> dict[str, Any]:
    """What `benchmarks/depth_study.py` wrote."""
    content: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return content


def iterations() -> str:
    """The layers that each step of a stream needs to converge, a line per tolerance."""
    stream = measured()["stream"]

    def fill(axes: Axes) -> None:
        for row, tone in zip(stream["iterations"], ("green", "orange", "blue"), strict=True):
            label = f"tolerance {row['tolerance']:g}"
            axes.plot(row["iterations"], "o-", color=LIGHT[tone], markersize=3, label=label)
        axes.set_xticks(range(len(stream["text"])), [VISIBLE.get(c, c) for c in stream["text"]])
        axes.set(xlim=(-1, len(stream["text"])), ylim=(0, None), ylabel="layers")
        axes.grid(False, axis="x")
        axes.figure.legend(loc="outside lower center", ncols=len(stream["iterations"]), handlelength=1)

    return chart("How many layers each character of a stream needs to converge", 760, 340, fill, alone=True)


def quality() -> str:
    """Bits over depth, a line per path."""
    return _over("depth", "layers (log scale)", "Quality over depth: one net, three paths")


def cost() -> str:
    """Bits over the time of a streamed step, a line per path."""
    return _over(
        "streamed_ms", "ms of a streamed step (log scale)", "Quality over the cost of a streamed step: the same net"
    )


def _over(column: str, label: str, title: str) -> str:
    rows = [row for row in measured()["quality"] if row["bits"] < MOST_BITS]

    def fill(axes: Axes) -> None:
        for path, tone in TONES.items():
            own = [row for row in rows if row["path"] == path]
            axes.plot([row[column] for row in own], [row["bits"] for row in own], "o-", color=LIGHT[tone], label=path)
        axes.set_xscale("log")
        ticks = (1, 2, 4, 8, 16, 32, 64, 96) if column == "depth" else (0.1, 0.2, 0.5, 1, 2, 5, 10)
        low, high = min(row[column] for row in rows), max(row[column] for row in rows)
        inside = [tick for tick in ticks if 0.7 * low <= tick <= 1.4 * high]
        axes.set_xticks(inside, [f"{tick:g}" for tick in inside])
        axes.minorticks_off()
        axes.set(xlabel=label, ylabel="valid bits")
        axes.figure.legend(loc="outside lower center", ncols=len(TONES), handlelength=1)

    return chart(title, 760, 360, fill, alone=True)


def convergence() -> str:
    """How much each layer changes the hidden state, a line per path."""
    changes = measured()["changes"]

    def fill(axes: Axes) -> None:
        for path, tone in TONES.items():
            values = changes[path]
            axes.plot(range(1, len(values) + 1), values, "o-", color=LIGHT[tone], markersize=4)
            axes.annotate(path, (len(values), values[-1]), (10, 0), color=LIGHT[tone], **BESIDE)
        axes.set_yscale("log")
        ticks = (0.1, 0.01, 0.001, 0.0001, 0.00001)
        axes.set_yticks(ticks, [f"{tick:f}".rstrip("0") for tick in ticks])
        axes.minorticks_off()
        axes.set(xlabel="layer", ylabel="mean change of a channel")

    return chart("How much each layer changes the output of the one below (log scale)", 760, 340, fill, alone=True)


def time_per_token() -> str:
    """Time of a training step over depth, a line per path."""
    return _costs("µs per token", "Time of a training step over depth (log scales)", (10, 20, 50, 100, 200, 500, 1000))


def memory_per_token() -> str:
    """Memory of a training step over depth, a line per path."""
    return _costs("kB per token", "Memory of a training step over depth (log scales)", (10, 20, 50, 100, 200, 500))


def _costs(column: str, title: str, ticks: tuple[int, ...]) -> str:
    rows = results()["depth-costs"]

    def fill(axes: Axes) -> None:
        for path, tone in {**TONES, "LSTM": "pink"}.items():
            own = [row for row in rows if row["path"] == path]
            axes.plot([row["depth"] for row in own], [row[column] for row in own], "o-", color=LIGHT[tone], label=path)
        axes.set(xscale="log", yscale="log", xlabel="layers", ylabel=column)
        axes.set_xticks(DEPTHS, [f"{depth}" for depth in DEPTHS])
        low, high = min(row[column] for row in rows), max(row[column] for row in rows)
        inside = [tick for tick in ticks if 0.7 * low <= tick <= 1.4 * high]
        axes.set_yticks(inside, [f"{tick:,}" for tick in inside])
        axes.minorticks_off()
        axes.figure.legend(loc="outside lower center", ncols=len(TONES) + 1, handlelength=1)

    return chart(title, 760, 340, fill, alone=True)
