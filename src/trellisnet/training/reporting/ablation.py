"""The results of ablations: results.json, and a table beside the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellisnet.training.ablation import ABLATIONS, Ablation
from trellisnet.training.metrics import Metric
from trellisnet.training.reporting.summary import (
    Summary,
    formatted_count,
    over_seeds,
    shown_over_seeds,
    summarise,
)
from trellisnet.training.runs import RESULT, Run, write_json

RESULTS = "results.json"
HEAD = ("", "parameters", "seeds", "steps", "valid", "test", "change", "paper", "paper's change")


@dataclass(frozen=True)
class Outcome:
    """What is known of a variant.

    Args:
        ablation: the variant.
        summaries: its finished runs.
        commands: the command of each of them.
        reason: why it does not apply to the recipe.
    """

    ablation: Ablation
    summaries: Sequence[Summary]
    commands: Sequence[str]
    reason: str | None = None

    def mean(self, metric: Metric) -> float | None:
        """The mean of the test metric over the seeds."""
        mean: float | None = over_seeds(self.summaries, "test", metric)["mean"]
        return mean

    def facts(self, metric: Metric) -> dict[str, Any]:
        """The entry in results.json."""
        return {
            "name": self.ablation.name,
            "title": self.ablation.title,
            "paper": self.ablation.paper_result,
            "not_trained": self.reason,
            "parameters": self.summaries[0].result["parameters"] if self.summaries else None,
            "seeds": [summary.config.training.seed for summary in self.summaries],
            "steps": [summary.steps for summary in self.summaries],
            **{split: over_seeds(self.summaries, split, metric) for split in ("valid", "test")},
            "commands": list(self.commands),
            "date": self.summaries[0].environment.get("started") if self.summaries else None,
        }


def finished(places: Sequence[Path]) -> list[Summary]:
    """The runs that ended with metrics."""
    runs = [Run.open(place) for place in places if (place / RESULT).exists()]
    return [summarise(run) for run in runs if "metrics" in (run.read_json(RESULT) or {})]


def metric_of(outcomes: Sequence[Outcome]) -> Metric | None:
    """The metric that all runs are judged by; None if none is finished."""
    return next((summary.metric for outcome in outcomes for summary in outcome.summaries), None)


def write_results(folder: Path, facts: Mapping[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Write results.json."""
    if (metric := metric_of(outcomes)) is not None:
        content = {**facts, "metric": metric.name, "ablations": [outcome.facts(metric) for outcome in outcomes]}
        write_json(folder / RESULTS, content)


def rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """The rows of the table, in the columns `HEAD`; the first outcome is the whole recipe, if it was trained."""
    metric = metric_of(outcomes)
    full = next((outcome for outcome in outcomes if outcome.ablation.name == "full"), None)
    whole = None if full is None or metric is None else full.mean(metric)
    return [_row(outcome, metric, whole) for outcome in outcomes]


def _row(outcome: Outcome, metric: Metric | None, whole: float | None) -> list[str]:
    published = outcome.ablation.paper_result
    beside = [f"{published:.2f}", f"{published - ABLATIONS[0].paper_result:+.2f}"]
    if metric is None or not outcome.summaries:
        reason = f"({outcome.reason or 'diverged'})"
        return [outcome.ablation.title, "-", "0", "-", "-", reason, "-", *beside]
    mean = outcome.mean(metric)
    change = "-" if whole is None or mean is None else f"{metric.scaled(mean) - metric.scaled(whole):+.3g}"
    return [
        outcome.ablation.title,
        formatted_count(outcome.summaries[0].result["parameters"]),
        str(len(outcome.summaries)),
        f"{statistics.mean(summary.steps for summary in outcome.summaries):,.0f}",
        *(shown_over_seeds(over_seeds(outcome.summaries, split, metric), metric) for split in ("valid", "test")),
        change,
        *beside,
    ]
