"""The charts of a report: curves, predictions against targets, and confusion matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trellisnet.training.reporting.drawing import LIGHT, SERIES, TOOLTIP, chart
from trellisnet.training.reporting.pages import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

REFERENCE: dict[str, Any] = {"color": LIGHT["soft"], "linestyle": (0, (5, 4)), "linewidth": 1.2}
DASHES = ("-", (0, (7, 3)), (0, (2, 3)))  # the second and third if there are more lines than colours
WIDTH, HEIGHT = 480.0, 300.0
LETTER = 7.0  # average width of a letter, in pixels
LARGEST, SMALLEST = 1e100, 1e-100  # larger values overflow in differences and powers, smaller ones are rounding errors
SMALLEST_FACTOR = 3.0  # between the extreme values; below it, a linear axis has better ticks than a logarithmic one
MOST_DOTS = 1000
MOST_MARKERS = 40  # longer lines have no markers
MOST_LABELS = 28  # along a side of a confusion matrix
LONGEST_NAME, LONGEST_LABEL = 44, 12

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Args:
        name: name in the legend; empty for none.
        points: (x, y), in the order of x. The line is interrupted where y is not finite.
        reference: draw the line dashed and grey, for comparison.
        colour: index of the colour; default the index of the line in the chart.
    """

    name: str
    points: Sequence[Point]
    reference: bool = False
    colour: int | None = None


def line_chart(title: str, series: Sequence[Series], x_label: str = "", y_label: str = "", log: bool = False) -> str:
    """Lines over steps.

    Args:
        title: title of the chart.
        series: the lines.
        x_label: label of the x axis, which has integer ticks.
        y_label: label of the y axis.
        log: use a logarithmic y axis if all values are positive.
    """
    names = [_shortened(visible(one.name), LONGEST_NAME) for one in series]
    columns = max(1, int(WIDTH / (56 + LETTER * max(map(len, names), default=1))))
    rows = math.ceil(sum(map(bool, names)) / columns)

    def fill(axes: Axes) -> None:
        shown = [y for one in series for _, y in _drawable(one.points) if not math.isnan(y)]
        ticks(axes.xaxis, whole=True)
        factor = max(shown) / min(shown) if log and shown and min(shown) > 0 else 0.0
        if factor > SMALLEST_FACTOR:
            axes.set_yscale("log")
            _log_ticks(axes.yaxis, math.log10(factor))
        else:
            ticks(axes.yaxis)
        for i, (one, name) in enumerate(zip(series, names, strict=True)):
            look = REFERENCE if one.reference else _look(i if one.colour is None else one.colour)
            marker = "o" if not one.reference and len(one.points) <= MOST_MARKERS else ""
            axes.plot(*_columns(_drawable(one.points)), marker=marker, markersize=4.5, label=name, **look)
        scale = "log scale" if axes.get_yscale() == "log" else ""
        axes.set(xlabel=x_label, ylabel=", ".join(filter(None, (y_label, scale))))
        if not shown:
            axes.set(xlim=(0, 1), ylim=(0, 1))
            axes.text(0.5, 0.5, "nothing to show yet", ha="center")
        if rows:
            handles = [line for line, name in zip(axes.lines, names, strict=True) if name]
            axes.figure.legend(handles=handles, loc="outside lower left", ncols=columns)

    return chart(title, WIDTH, HEIGHT + 20 * rows, fill)


def scatter_chart(title: str, points: Sequence[Point], x_label: str = "", y_label: str = "") -> str:
    """Pairs of numbers as dots, with the diagonal on which both are equal."""
    shown = [point for point in _drawable(points) if not any(map(math.isnan, point))]
    shown = shown[:: -(-len(shown) // MOST_DOTS) or 1]

    def fill(axes: Axes) -> None:
        axes.plot(*_columns(shown), "o", color=LIGHT["blue"], markersize=5, markeredgewidth=0, alpha=0.55)
        axes.set(aspect="equal", xlabel=x_label, ylabel=y_label)
        low, high = min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1])
        axes.set(xlim=(low, high), ylim=(low, high))
        axes.plot([low, high], [low, high], **REFERENCE)
        ticks(axes.xaxis)
        ticks(axes.yaxis)

    return chart(title, WIDTH, WIDTH, fill)


def heat_map(
    title: str,
    labels: Sequence[str],
    counts: Sequence[Sequence[float]],
    x_label: str,
    y_label: str,
    columns: Sequence[str] | None = None,
) -> str:
    """A matrix of counts, coloured by shares per row, with numbers if they fit; `columns`: default as the rows."""
    columns = labels if columns is None else columns
    size = max(len(labels), len(columns), 1)
    rows, names = ([_shortened(visible(label), LONGEST_LABEL) for label in each] for each in (labels, columns))
    longest = max(map(len, [*rows, *names]), default=1)
    cell = (WIDTH - 60 - LETTER * longest) / size  # in pixels, approximately
    numbered = cell > LETTER * (len(f"{max(map(max, counts), default=0):g}") + 0.5)

    def fill(axes: Axes) -> None:
        from matplotlib.patches import Rectangle  # noqa: PLC0415

        axes.set(
            aspect="equal", xlim=(0, max(len(names), 1)), ylim=(max(len(rows), 1), 0), xlabel=x_label, ylabel=y_label
        )
        axes.grid(False)
        axes.spines[:].set(visible=True, color=LIGHT["line"])
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        every = math.ceil(size / MOST_LABELS)
        upright: dict[str, Any] = {"rotation": 90, "rotation_mode": "anchor", "ha": "left", "va": "center"}
        axes.set_xticks(**_labels_at(names, every), **(upright if longest * LETTER > cell * every else {}))
        axes.set_yticks(**_labels_at(rows, every))
        for i, j, count, share in _shares(counts):
            strength = math.sqrt(share)  # the root keeps rare errors visible
            text = f"{y_label} {visible(labels[i])}, {x_label} {visible(columns[j])}: {count:g} ({share:.1%})"
            look: dict[str, Any] = {"color": LIGHT["blue"], "alpha": strength, "linewidth": 0, "gid": TOOLTIP + text}
            axes.add_artist(
                Rectangle((j, i), 1, 1, in_layout=False, **look)
            )  # thousands of artists slow down the layout
            if numbered:
                colour = LIGHT["paper" if strength > 0.6 else "ink"]
                axes.text(j + 0.5, i + 0.5, f"{count:g}", ha="center", va="center_baseline", color=colour)

    return chart(title, WIDTH, WIDTH, fill)


def _labels_at(names: Sequence[str], every: int) -> dict[str, Any]:
    """The places and texts of the labels of rows or columns, every n-th of them."""
    places = range(0, len(names), every)
    return {"ticks": [i + 0.5 for i in places], "labels": [names[i] for i in places]}


def _shares(counts: Sequence[Sequence[float]]) -> list[tuple[int, int, float, float]]:
    """Row, column, count and share of the row, for all nonzero counts."""
    return [(i, j, count, count / sum(row)) for i, row in enumerate(counts) for j, count in enumerate(row) if count > 0]


def _drawable(points: Sequence[Point]) -> list[Point]:
    """Points with NaN for all numbers that cannot be drawn."""
    return [(_bounded(x), _bounded(y)) for x, y in points]


def _bounded(value: float) -> float:
    return math.nan if not abs(value) <= LARGEST else value if abs(value) >= SMALLEST else 0.0


def _columns(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _look(index: int) -> dict[str, Any]:
    """Colour and line style."""
    return {
        "color": LIGHT[SERIES[index % len(SERIES)]],
        "linestyle": DASHES[index // len(SERIES) % len(DASHES)],
    }


def ticks(axis: Axis, whole: bool = False) -> None:
    """About five round ticks; with `whole` only at integers, written like 10k."""
    from matplotlib.ticker import EngFormatter, MaxNLocator  # noqa: PLC0415

    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=whole, min_n_ticks=1 if whole else 2))
    if whole:
        axis.set_major_formatter(EngFormatter(sep=""))


def _log_ticks(axis: Axis, decades: float) -> None:
    """Ticks at powers of ten, and between them if there are few."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter  # noqa: PLC0415

    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.5 else (1,), numticks=7))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _shortened(name: str, longest: int) -> str:
    """A long name without its middle, since its ends are more specific.

    >>> _shortened("runs/word-ptb-without-weight-dropout-1", 21)
    'runs/word-…-dropout-1'
    """
    half = longest // 2
    return name if len(name) <= longest else f"{name[: longest - half - 1]}…{name[-half:]}"
