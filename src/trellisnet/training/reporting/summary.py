"""What a run's folder tells of it, finished or not."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellisnet.training.config import Config
from trellisnet.training.reporting.figures import Point
from trellisnet.training.runs import Run

METRICS = ("accuracy", "mse", "perplexity", "bits", "loss")  # in what order to guess, if a run's recipe names none


@dataclass(frozen=True)
class Summary:
    """A run in numbers.

    Args:
        name: of its folder.
        config: of the run.
        metric: what it is judged by; None if that is not known yet.
        losses: (step, training loss).
        parts: for each part of the training loss by name, (step, value).
        rates: (step, learning rate).
        valid: (epoch, step, metrics of validation).
        steps: made so far.
        result: of result.json; nothing in it while the run goes on.
        environment: of environment.json.
    """

    name: str
    config: Config
    metric: str | None
    losses: list[Point]
    parts: dict[str, list[Point]]
    rates: list[Point]
    valid: list[tuple[int, int, dict[str, float]]]
    steps: int
    result: dict[str, Any]
    environment: dict[str, Any]

    @property
    def epochs(self) -> int:
        """Epochs that were evaluated."""
        return self.valid[-1][0] if self.valid else 0

    def curve(self, metric: str) -> list[Point]:
        """A metric of validation over steps."""
        return [(step, metrics[metric]) for _, step, metrics in self.valid if metric in metrics]

    def best(self) -> tuple[int, float] | None:
        """Epoch and value of the best validation so far."""
        known = [(epoch, metrics.get(self.metric or "", math.nan)) for epoch, _, metrics in self.valid]
        sign = -1 if self.metric == "accuracy" else 1
        return min((one for one in known if not math.isnan(one[1])), key=lambda one: sign * one[1], default=None)

    def final(self, split: str, metric: str | None = None) -> float | None:
        """A metric of the best model, once the run has ended."""
        value: float | None = self.result.get("metrics", {}).get(split, {}).get(metric or self.metric)
        return value


def summarise(run: Run) -> Summary:
    """Read a run's folder."""
    entries = run.metrics()
    valid = [(entry["epoch"], entry["step"], entry["valid"]) for entry in entries if "valid" in entry]
    result = _read_json(run.folder / "result.json")
    known = valid[-1][2] if valid else next(iter(result.get("metrics", {}).values()), {})
    return Summary(
        name=run.folder.resolve().name,
        config=run.config,
        metric=run.config.about.metric or next((name for name in METRICS if name in known), None),
        losses=[(entry["step"], entry["loss"]) for entry in entries if "loss" in entry],
        parts=_parts(entries),
        rates=[(entry["step"], entry["learning_rate"]) for entry in entries if "learning_rate" in entry],
        valid=valid,
        steps=entries[-1]["step"] if entries else 0,
        result=result,
        environment=_read_json(run.folder / "environment.json"),
    )


def _parts(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[Point]]:
    """The parts of the training loss; a run may have logged none."""
    parts: dict[str, list[Point]] = {}
    for entry in entries:
        for name, value in entry.get("parts", {}).items():
            parts.setdefault(name, []).append((entry["step"], value))
    return parts


def _read_json(path: Path) -> dict[str, Any]:
    """A file's content; nothing, if the run has not written it yet."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: expected a mapping, got {type(content).__name__}")
    return content


def told(value: float | None, metric: str | None) -> str:
    """A metric's value as the paper writes it.

    >>> told(0.9813, "accuracy"), told(56.97, "perplexity"), told(1.158, "bits"), told(None, "bits")
    ('98.13 %', '56.97', '1.158', '-')
    """
    if value is None:
        return "-"
    if metric == "accuracy":
        return f"{100 * value:.2f} %"
    decimals = {"perplexity": 2, "bits": 3}.get(metric or "")
    return f"{value:.4g}" if decimals is None or abs(value) >= 1e6 else f"{value:,.{decimals}f}"


def told_count(parameters: float | None) -> str:
    """A count of parameters.

    >>> told_count(24_310_000), told_count(1_234), told_count(None)
    ('24.31 M', '1,234', '-')
    """
    if parameters is None:
        return "-"
    return f"{parameters / 1e6:.2f} M" if parameters >= 1e5 else f"{parameters:,.0f}"
