"""Charts of prediction intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trellisnet.training.reporting.drawing import LIGHT, chart
from trellisnet.training.reporting.figures import HEIGHT, WIDTH, ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OPACITY = 0.22  # of each band; bands within bands are darker


def interval_chart(shown: Mapping[str, Any]) -> str:
    """What came true, the median or the quantile nearest to it, and bands between pairs of quantiles.

    Args:
        shown: `name`; `past`, the values before the forecast, may be empty; `target`, what came true; `levels`; and
            `quantiles`, one per level for each target.
    """
    past, target, levels = shown["past"], shown["target"], shown["levels"]
    columns = [list(column) for column in zip(*shown["quantiles"], strict=True)]
    steps = list(range(1, len(target) + 1))
    before = list(range(1 - len(past), 1))
    middle = min(range(len(levels)), key=lambda i: abs(levels[i] - 0.5))

    def fill(axes: Axes) -> None:
        bands = len(levels) // 2
        for i in range(bands):
            label = f"{levels[i]:g} to {levels[-1 - i]:g}"
            look: dict[str, Any] = {"color": LIGHT["blue"], "alpha": OPACITY, "linewidth": 0, "label": label}
            axes.fill_between(steps, columns[i], columns[-1 - i], **look)
        axes.plot(steps, columns[middle], color=LIGHT["blue"], label=f"quantile {levels[middle]:g}")
        joined = [*zip(before, past, strict=True), *zip(steps, target, strict=True)]
        axes.plot(*zip(*joined, strict=True), color=LIGHT["ink"], label="what came true", linewidth=1.2)
        if past:
            axes.axvline(0.5, color=LIGHT["soft"], linestyle=(0, (2, 3)), linewidth=1)
        ticks(axes.xaxis, whole=True)
        ticks(axes.yaxis)
        axes.set(xlabel="step of the forecast" if past else "number")
        axes.figure.legend(loc="outside lower left", ncols=3)

    title = ": ".join(part for part in ("Prediction intervals", shown["name"]) if part)
    return chart(title, WIDTH, HEIGHT + 20 * (1 + len(levels) // 4), fill)
