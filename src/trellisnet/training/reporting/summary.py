"""A summary of a run's folder, finished or not."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trellisnet.training.config import Config
from trellisnet.training.metrics import STANDARD, Metric
from trellisnet.training.reporting.figures import Point
from trellisnet.training.runs import RESULT, TASK, Run


@dataclass(frozen=True)
class Summary:
    """The numbers of a run.

    Args:
        name: name of its folder.
        config: configuration of the run.
        model: class of its model; empty if the run does not record it.
        dataset: name of its data.
        metrics: all metrics of the run, by name.
        metric: the metric that selects the best epoch; None if it is not known yet.
        losses: (step, training loss).
        parts: (step, value) of each part of the training loss, by name.
        rates: (step, learning rate).
        valid: (epoch, step, validation metrics).
        depths: (depth, validation metrics of the best model), if training drew depths from a range and is finished.
        seconds: training time of each of `valid`; empty unless the run has a time budget.
        steps: number of steps so far.
        result: content of result.json; empty until the run is finished.
        environment: content of environment.json.
    """

    name: str
    config: Config
    model: str
    dataset: str
    metrics: dict[str, Metric]
    metric: Metric | None
    losses: list[Point]
    parts: dict[str, list[Point]]
    rates: list[Point]
    valid: list[tuple[float, int, dict[str, float]]]
    depths: list[tuple[int, dict[str, float]]]
    seconds: list[float]
    steps: int
    result: dict[str, Any]
    environment: dict[str, Any]

    @property
    def epochs(self) -> float:
        """The last evaluated epoch; with a time budget, not always a whole number."""
        return self.valid[-1][0] if self.valid else 0

    def curve(self, metric: Metric) -> list[Point]:
        """A validation metric over steps."""
        return [(step, metrics[metric.name]) for _, step, metrics in self.valid if metric.name in metrics]

    def best(self) -> tuple[float, float] | None:
        """Epoch and value of the best validation so far; None if there is none."""
        if (metric := self.metric) is None:
            return None
        known = [(epoch, metrics.get(metric.name, math.nan)) for epoch, _, metrics in self.valid]
        points = [point for point in known if not math.isnan(point[1])]
        return min(points, key=lambda point: metric.judged(point[1]), default=None)

    def final(self, split: str, metric: Metric | None = None) -> float | None:
        """A metric of the best model; None until the run is finished."""
        value: float | None = self.result.get("metrics", {}).get(split, {}).get(str(metric or self.metric))
        return value

    def naive(self, name: str, metric: Metric) -> list[float | None]:
        """A metric of a naive forecast on the validation and test splits."""
        found = self.result.get("naive", {})
        return [found.get(split, {}).get(name, {}).get(str(metric)) for split in ("valid", "test")]


def over_seeds(summaries: Sequence[Summary], split: str, metric: Metric) -> dict[str, Any]:
    """A metric of each finished run, the mean, and the standard deviation; None where there are too few runs."""
    found = [value for summary in summaries if (value := summary.final(split, metric)) is not None]
    return {
        "values": found,
        "mean": statistics.mean(found) if found else None,
        "spread": statistics.stdev(found) if len(found) > 1 else None,
    }


def summarise(run: Run) -> Summary:
    """Read a run's folder."""
    entries = run.metrics()
    valid = [(entry["epoch"], entry["step"], entry["valid"]) for entry in entries if "valid" in entry]
    result = run.read_json(RESULT) or {}
    known = valid[-1][2] if valid else next(iter(result.get("metrics", {}).values()), {})
    facts = run.read_json(TASK) or {}
    metrics = {fact["name"]: Metric(**fact) for fact in facts.get("metrics", [])} or STANDARD
    name = run.config.about.metric or facts.get("metric") or next((name for name in metrics if name in known), None)
    return Summary(
        name=run.folder.resolve().name,
        config=run.config,
        model=facts.get("model", ""),
        dataset=facts["data"]["name"] if facts.get("given") else run.config.data.name,
        metrics=metrics,
        metric=None if name is None else metrics.get(name) or Metric(name),
        losses=[(entry["step"], entry["loss"]) for entry in entries if "loss" in entry],
        parts=_parts(entries),
        rates=[(entry["step"], entry["learning_rate"]) for entry in entries if "learning_rate" in entry],
        valid=valid,
        depths=[(int(depth), found) for entry in entries for depth, found in entry.get("depths", {}).items()],
        seconds=[entry["seconds"] for entry in entries if "valid" in entry and "seconds" in entry],
        steps=entries[-1]["step"] if entries else 0,
        result=result,
        environment=run.read_json("environment.json") or {},
    )


def _parts(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[Point]]:
    """The parts of the training loss; empty if the run logged none."""
    parts: dict[str, list[Point]] = {}
    for entry in entries:
        for name, value in entry.get("parts", {}).items():
            parts.setdefault(name, []).append((entry["step"], value))
    return parts


def formatted(value: float | None, metric: Metric | None) -> str:
    """A metric's value in the paper's format; a dash if there is none.

    >>> formatted(0.9813, STANDARD["accuracy"]), formatted(None, STANDARD["bits"])
    ('98.13 %', '-')
    """
    return "-" if value is None or metric is None else metric.formatted(value)


def shown_over_seeds(found: Mapping[str, Any], metric: Metric) -> str:
    """The result of `over_seeds` in the paper's format: the mean, and after ± the standard deviation."""
    around = "" if found["spread"] is None else f" ± {metric.formatted(found['spread'])}"
    return formatted(found["mean"], metric) + around


def formatted_count(parameters: float | None) -> str:
    """A number of parameters.

    >>> formatted_count(24_310_000), formatted_count(1_234), formatted_count(None)
    ('24.31 M', '1,234', '-')
    """
    if parameters is None:
        return "-"
    return f"{parameters / 1e6:.2f} M" if parameters >= 1e5 else f"{parameters:,.0f}"
