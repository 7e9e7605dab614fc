"""The report, the results and the best recipe of a study."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

import yaml

from trellisnet.files import replacing
from trellisnet.training.config import Config
from trellisnet.training.reading import VERSION
from trellisnet.training.reporting.drawing import has_matplotlib
from trellisnet.training.reporting.figures import Series, line_chart
from trellisnet.training.reporting.pages import escaped, figure, figures, page, section, table, verbatim
from trellisnet.training.reporting.report import REPORT
from trellisnet.training.runs import write_json
from trellisnet.training.tuning import Study, as_flag

RESULTS, BEST = "results.json", "best.yaml"


def head(study: Study) -> list[str]:
    """The titles of the table of trials."""
    return ["trial", "state", f"valid {study.metric}", *study.space]


def rows(study: Study) -> list[list[str]]:
    """The lines of the table of trials: complete ones first, the best first."""
    complete = study.complete()
    numbers = {trial.number for trial in complete}
    others = [trial for trial in study.trials if trial.number not in numbers]
    return [_row(study, trial) for trial in (*complete, *others)]


def _row(study: Study, trial: Any) -> list[str]:
    known = list(trial.intermediate_values.values())
    value = trial.value if trial.state.name == "COMPLETE" else min(known, default=None)
    shown = "-" if value is None else study.metric.formatted(study.metric.judged(value))
    options = [_shown(trial.params[name]) if name in trial.params else "-" for name in study.space]
    return [str(trial.number), trial.state.name.lower(), shown, *options]


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else as_flag(value)


def write_study(study: Study, facts: Mapping[str, Any], best: Config | None) -> None:
    """Write results.json, the report and, if a trial is complete, best.yaml.

    Args:
        study: the study, finished or not.
        facts: recipe and flags.
        best: the configuration of the best trial.
    """
    importances, complete = study.importances(), study.complete()
    trials = [
        {
            "number": trial.number,
            "state": trial.state.name.lower(),
            "value": study.metric.judged(trial.value) if trial.state.name == "COMPLETE" else None,
            "params": trial.params,
            "evaluations": {n: study.metric.judged(value) for n, value in trial.intermediate_values.items()},
            **({"failed": trial.user_attrs["failed"]} if "failed" in trial.user_attrs else {}),
        }
        for trial in study.trials
    ]
    write_json(
        study.folder / RESULTS,
        {**facts, "metric": study.metric.name, "importances": importances, "trials": trials},
    )
    if best is not None:
        winner = complete[0]
        value = study.metric.formatted(study.metric.judged(winner.value))
        comment = f"# the best of {len(study.finished())} trials: trial {winner.number}, valid {study.metric} {value}\n"
        text = yaml.safe_dump({**best.to_dict(), "version": VERSION}, sort_keys=False, allow_unicode=True)
        with replacing(study.folder / BEST) as (file,):
            file.write_text(comment + text, encoding="utf-8")
    with replacing(study.folder / REPORT) as (file,):
        file.write_text(_page(study, facts, importances), encoding="utf-8")


def _page(study: Study, facts: Mapping[str, Any], importances: Mapping[str, float]) -> str:
    title = f"{facts['recipe']}: {len(study.finished())} trials"
    shares = [[name, f"{100 * share:.0f} %"] for name, share in importances.items()]
    command = f"trellisnet train {study.folder / BEST}" if study.complete() else ""
    return page(
        title,
        f"<h1>{escaped(title)}</h1>",
        section("Trials", table(head(study), rows(study), numbers=True)),
        section("Importances", table(["option", "share of the differences"], shares, numbers=True) if shares else ""),
        section("Search", _chart(study)),
        section("Train the best", verbatim(command)) if command else "",
        section("Space", verbatim(json.dumps(facts["space"], indent=1))),
    )


def _chart(study: Study) -> str:
    """The value of every complete trial, and the best so far."""
    done = sorted(study.complete(), key=lambda trial: trial.number)
    if not done or not has_matplotlib():
        return ""
    metric = study.metric
    best = accumulate((trial.value for trial in done), min)
    lines = [
        Series("trial", [(trial.number, metric.scaled(metric.judged(trial.value))) for trial in done]),
        Series("best so far", [(t.number, metric.scaled(metric.judged(v))) for t, v in zip(done, best, strict=True)]),
    ]
    return figures(figure(line_chart(f"Validation {metric}", lines, "trial", metric.axis, log=metric.logarithmic)))


def as_recipe(config: Config, test: bool) -> Config:
    """The configuration of a trial as an experiment of its own, which may read the test split."""
    return replace(config, training=replace(config.training, test=test))
