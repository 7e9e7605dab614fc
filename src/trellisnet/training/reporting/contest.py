"""The results of a contest: results.json, and a report with a table and charts."""

from __future__ import annotations

import json
import math
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trellisnet.files import replacing
from trellisnet.training.contest import Contestant, Terms, chosen_rate, final_runs, pilot_scores
from trellisnet.training.metrics import Metric
from trellisnet.training.reporting.drawing import MISSING, has_matplotlib
from trellisnet.training.reporting.figures import Series, line_chart
from trellisnet.training.reporting.pages import escaped, figure, figures, page, section, table, verbatim
from trellisnet.training.reporting.report import REPORT, environment_table, loss_chart, validation_chart
from trellisnet.training.reporting.summary import Summary, formatted, formatted_count, over_seeds, shown_over_seeds
from trellisnet.training.tables import Row, published

RESULTS = "results.json"
HEAD = ("", "parameters", "rate", "seeds", "valid", "test", "steps", "ms per step", "µs streamed", "published")
SET_BY_CONTEST = ("epochs", "minutes", "clock", "evaluate_every", "evaluate_minutes", "learning_rate", "seed")


class Standing:
    """A contestant's results so far.

    Args:
        contestant: the contestant.
        terms: the terms of the contest.
    """

    def __init__(self, contestant: Contestant, terms: Terms) -> None:
        self.contestant, self.terms = contestant, terms
        self.metric: Metric = contestant.metric
        self.pilots = pilot_scores(contestant, terms)
        self.rate = chosen_rate(contestant, terms)
        found = [] if self.rate is None else final_runs(contestant, terms, self.rate)
        self.summaries: list[Summary] = [summary for summary, _ in found]
        self.step_seconds = statistics.mean(seconds for _, seconds in found) if found else None
        self.streamed = contestant.streamed_step(terms.clock) if found else None

    @property
    def at_edge(self) -> bool:
        """Whether the chosen rate is the lowest or the highest of those tried: a better one may lie beyond."""
        return len(self.pilots) > 1 and self.rate in (min(self.pilots), max(self.pilots))

    def over_seeds(self, split: str) -> dict[str, Any]:
        """The metric's values over the seeds, mean and standard deviation."""
        return over_seeds(self.summaries, split, self.metric)

    @property
    def judged(self) -> float:
        """The validation mean, lower is better; infinite without a result."""
        mean = self.over_seeds("valid")["mean"]
        return math.inf if mean is None or math.isnan(mean) else self.metric.judged(mean)

    def facts(self) -> dict[str, Any]:
        """The entry in results.json."""
        model = self.contestant.config.model
        first = self.summaries[0].environment if self.summaries else {}
        return {
            "name": self.contestant.name,
            "body": model.body,
            "options": self.contestant.options,
            "hidden_size": model.hidden_size,
            "parameters": self.contestant.parameters,
            "learning_rate": self.rate,
            "at_edge": self.at_edge,
            "pilots": [{"learning_rate": rate, "valid": value} for rate, value in self.pilots.items()],
            "seeds": [summary.config.training.seed for summary in self.summaries],
            **{split: self.over_seeds(split) for split in ("valid", "test")},
            "steps": [summary.steps for summary in self.summaries],
            "epochs": [summary.epochs for summary in self.summaries],
            "curves": [timed_curve(summary, self.metric) for summary in self.summaries],
            "seconds_per_step": self.step_seconds,
            "seconds_per_streamed_step": self.streamed,
            "commands": self._commands(),
            "date": first.get("started"),
        }

    def _commands(self) -> list[str]:
        """The command of each run."""
        return [
            " ".join(
                [self.contestant.command, *(f"--training.{name} {getattr(training, name)}" for name in SET_BY_CONTEST)]
            )
            for training in (summary.config.training for summary in self.summaries)
        ]

    def row(self) -> list[str]:
        """The row of the table, in the columns `HEAD`."""
        steps = [summary.steps for summary in self.summaries]
        return [
            self.contestant.name,
            formatted_count(self.contestant.parameters),
            "-" if self.rate is None else f"{self.rate:g}{' (edge)' if self.at_edge else ''}",
            f"{len(self.summaries)} of {self.terms.seeds}",
            self.shown("valid"),
            self.shown("test"),
            f"{statistics.mean(steps):,.0f}" if steps else "-",
            "-" if self.step_seconds is None else f"{1e3 * self.step_seconds:.1f}",
            "-" if self.streamed is None else f"{1e6 * self.streamed:.0f}",
            self._published(),
        ]

    def shown(self, split: str) -> str:
        """The mean and the standard deviation over the seeds, as text."""
        return shown_over_seeds(self.over_seeds(split), self.metric)

    def published(self) -> list[Row]:
        """The published results of systems with its body on its data."""
        data = self.contestant.config.data
        return published(data.name, self.contestant.config.model.body, data.options)

    def _published(self) -> str:
        shown = [f"{formatted(row.published, self.metric)} ({row.system})" for row in self.published()]
        return "; ".join(shown) or "-"


def timed_curve(summary: Summary, metric: Metric) -> list[tuple[float, float]]:
    """Seconds of training and the metric at each evaluation of a run."""
    return [(seconds, value) for seconds, (_, value) in zip(summary.seconds, summary.curve(metric), strict=True)]


def write_results(folder: Path, facts: Mapping[str, Any], standings: Sequence[Standing]) -> None:
    """Write results.json and the report of a contest, finished or not."""
    metric = standings[0].metric
    content = {**facts, "metric": metric.name, "contestants": [standing.facts() for standing in standings]}
    with replacing(folder / RESULTS) as (file,):
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    of_what = "minutes of CPU time" if facts["clock"] == "cpu" else "minutes"
    title = f"{facts['recipe']}: {len(standings)} bodies, {facts['minutes']:g} {of_what} each"
    ordered = sorted(standings, key=lambda standing: standing.judged)
    edges = [standing.contestant.name for standing in ordered if standing.at_edge]
    rates = standings[0].terms.rates
    chosen = f" Each learning rate is the best of {rates} on the validation split." if rates > 1 else ""
    notes = [
        f"Best validation first; mean ± standard deviation over the seeds.{chosen} Only the final runs read the test."
    ]
    if edges:
        notes.append(f"A better learning rate may lie beyond those tried: {', '.join(edges)}.")
    charts = _charts(metric, standings) if has_matplotlib() else f"<p class='soft'>The {escaped(MISSING)}</p>"
    commands = "\n".join(command for standing in standings for command in standing.facts()["commands"])
    text = page(
        title,
        f"<h1>{escaped(title)}</h1>",
        section("Results", table(HEAD[:-1], [standing.row()[:-1] for standing in ordered], True), *map(_note, notes)),
        section("Published results", _published_table(ordered)),
        section("Curves and costs", charts),
        section("Repeat the contest", verbatim(shlex.join(["trellisnet", *facts["environment"]["command"][1:]]))),
        section("Repeat a run", verbatim(commands)) if commands else "",
        section("Environment", environment_table(facts["environment"])),
    )
    with replacing(folder / REPORT) as (file,):
        file.write_text(text, encoding="utf-8")


def _published_table(standings: Sequence[Standing]) -> str:
    """Our test results beside the published ones of systems with the same body; empty if there are none."""
    rows = [
        [
            each.contestant.name,
            each.shown("test"),
            formatted(row.published, each.metric),
            "-" if row.size is None else f"{row.size:g}M",
            f"{row.system} ({row.citation})",
        ]
        for each in standings
        for row in each.published()
    ]
    return table(("", "ours", "published", "its size", "system"), rows, True) if rows else ""


def _note(text: str) -> str:
    return f"<p class='soft'>{escaped(text)}</p>"


def _charts(metric: Metric, standings: Sequence[Standing]) -> str:
    """Learning curves of all runs, and the test result against three kinds of cost."""
    over_time, over_steps, losses = [], [], []
    for i, standing in enumerate(standings):
        for j, summary in enumerate(standing.summaries):
            name = "" if j else standing.contestant.name  # one entry in the legend per contestant
            over_time.append(Series(name, timed_curve(summary, metric), colour=i))
            over_steps.append(Series(name, summary.curve(metric), colour=i))
            losses.append(Series(name, summary.losses, colour=i))
    costs = {
        "parameters": [float(standing.contestant.parameters) for standing in standings],
        "milliseconds per training step": [1e3 * (standing.step_seconds or math.nan) for standing in standings],
        "microseconds per streamed step": [1e6 * (standing.streamed or math.nan) for standing in standings],
    }
    against = [
        line_chart(
            f"Test {metric} and {label}",
            [
                Series(standing.contestant.name, [(cost, metric.scaled(value))], colour=i)
                for i, (standing, cost) in enumerate(zip(standings, numbers, strict=True))
                if (value := standing.over_seeds("test")["mean"]) is not None
            ],
            label,
            metric.axis,
            log=metric.logarithmic,
        )
        for label, numbers in costs.items()
    ]
    return figures(
        *map(
            figure,
            [
                validation_chart(metric, over_time, "seconds of training"),
                validation_chart(metric, over_steps),
                loss_chart(losses),
                *against,
            ],
        )
    )
