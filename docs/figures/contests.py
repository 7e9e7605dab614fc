"""The figures of contests: measurements of `benchmarks/contests/*.json`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from trellisnet.training.reporting.drawing import LIGHT, SERIES, chart

CONTESTS = Path(__file__).parents[2] / "benchmarks" / "contests"


def over_time(name: str, title: str, unit: str, most: float) -> Callable[[], str]:
    """The validation of every contestant over training time: the mean of its seeds, and their range.

    Args:
        name: of the contest.
        title: of the figure.
        unit: of the metric.
        most: worse points would leave no room for the others.
    """

    def draw() -> str:
        contest = json.loads((CONTESTS / f"{name}.json").read_text(encoding="utf-8"))
        ranked = sorted(contest["contestants"], key=lambda each: each["valid"]["mean"])

        def fill(axes: Axes) -> None:
            for i, each in enumerate(ranked):
                points = list(zip(*each["curves"], strict=True))  # per evaluation, one (seconds, value) per seed
                points = [seeds for seeds in points if max(value for _, value in seeds) <= most]
                minutes = [statistics.mean(seconds for seconds, _ in seeds) / 60 for seeds in points]
                values = [[value for _, value in seeds] for seeds in points]
                colour, line = LIGHT[SERIES[i % len(SERIES)]], "o--" if i >= len(SERIES) else "o-"
                axes.plot(minutes, [*map(statistics.mean, values)], line, color=colour, markersize=4, label=label(each))
                axes.fill_between(minutes, [*map(min, values)], [*map(max, values)], color=colour, alpha=0.15, lw=0)
            axes.set(xlabel="minutes of one core", ylabel=unit, xlim=(0, None))
            axes.figure.legend(loc="outside lower center", ncols=2, handlelength=1)

        return chart(title, 760, 460, fill, alone=True)

    return draw


def label(contestant: dict[str, Any]) -> str:
    """What a contestant is, in words.

    >>> label({"body": "lstm", "options": {"model.num_layers": "2"}})
    'LSTM, 2 layers'
    """
    options = {key.removeprefix("model."): value for key, value in contestant["options"].items()}
    count = int(options.get("num_layers", 1))
    if contestant["body"] != "trellis":
        return f"{contestant['body'].upper()}, {count} layer{'s' * (count > 1)}"
    if options["path"] == "layers":
        return f"{count} layers, the paper's path"
    gates = "coupled gates" if options["cell"] == "coupled" else "LSTM gates"
    taps = {"0": "no hidden weights (QRNN)", "1": f"{gates}, one hidden tap"}.get(options["hidden_taps"], gates)
    whole = ", all channels read" if "read_all" in options else ""
    return f"{count} sweep{'s' * (count > 1)}, {taps}{whole}"
