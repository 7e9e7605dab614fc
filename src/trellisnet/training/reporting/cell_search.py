"""The report, the results and the best cell of a search for cells."""

from __future__ import annotations

import statistics
from typing import Any

import yaml

from trellisnet.files import replacing
from trellisnet.training.cell_search import Job, Search, Stage
from trellisnet.training.reporting.cell_graph import cell_graph
from trellisnet.training.reporting.drawing import has_matplotlib
from trellisnet.training.reporting.figures import Series, line_chart
from trellisnet.training.reporting.pages import escaped, figure, figures, page, section, table, verbatim
from trellisnet.training.reporting.report import REPORT
from trellisnet.training.runs import RESULT, read_json, write_json

RESULTS, BEST = "results.json", "best.yaml"
HEAD = ["valid", "rung", "cell", "factor", "offset", "hidden"]
SHOWN = 12  # lines of the table of a rung
DRAWN = 4  # cells


def rows(search: Search) -> list[list[str]]:
    """The best candidates of the highest rung that has any, and those of the rungs below that went no further."""
    lines, named = [], set()
    for stage in reversed(search.stages[1:]):
        for score, job in search.ranked(stage):
            if job.cell.parts not in named:
                named.add(job.cell.parts)
                lines.append([_value(search, score), stage.name, job.cell.name, *map(str, job.cell.parts)])
    return lines[:SHOWN]


def _value(search: Search, score: float) -> str:
    return search.metric.formatted(search.metric.judged(score))


def write_search(search: Search) -> None:
    """Write results.json, the report and, if a candidate is finished, best.yaml."""
    stages = {stage.name: [_record(search, job) for job in search.jobs(stage)] for stage in search.stages}
    budgets = {stage.name: stage.budget for stage in search.stages}
    noise = search.noise()
    facts = {**search.facts, "metric": search.metric.name, "budgets": budgets, "deviation": _deviation(noise)}
    write_json(search.folder / RESULTS, {**facts, "stages": stages})
    if (best := search.best()) is not None:
        score, job = best
        comment = f"# {search.facts['recipe']}, {job.stage.name}: valid {search.metric} {_value(search, score)}\n"
        text = yaml.safe_dump(job.cell.to_dict(), sort_keys=False)
        with replacing(search.folder / BEST) as (file,):
            file.write_text(comment + text, encoding="utf-8")
    with replacing(search.folder / REPORT) as (file,):
        file.write_text(_page(search), encoding="utf-8")


def _deviation(values: list[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _record(search: Search, job: Job) -> dict[str, Any]:
    result = read_json(job.place / RESULT) or {}
    value = result.get("metrics", {}).get("valid", {}).get(search.metric.name)
    failed = {"failed": result["failed"]} if "failed" in result else {}
    return {"number": job.number, "value": value, **failed, "cell": job.cell.to_dict()}


def _page(search: Search) -> str:
    facts, best = search.facts, search.best()
    title = f"{facts['recipe']}: a search for cells by {search.strategy}"
    noise = [search.metric.judged(score) for score in search.noise()]
    spread = _deviation(noise)
    seeds = ", ".join(map(search.metric.formatted, noise))
    text = f"The LSTM cell with {len(noise)} seeds has {search.metric} {seeds}" if noise else ""
    if spread is not None:
        text += f": a standard deviation of {search.metric.scaled(spread):.3g}. Smaller differences say nothing."
    command = "" if best is None else f"trellisnet train {facts['recipe']} --model.cell {search.folder / BEST}"
    return page(
        title,
        f"<h1>{escaped(title)}</h1>",
        section("Noise of seeds", f"<p>{escaped(text)}</p>" if text else ""),
        section("Best cells", _graphs(search)),
        *(_rung(search, stage) for stage in reversed(search.stages[1:])),
        section("Search", _chart(search)),
        section("Train the best", verbatim(command) if command else ""),
    )


def _rung(search: Search, stage: Stage) -> str:
    """The table of a rung."""
    ranked, jobs = search.ranked(stage), search.jobs(stage)
    lines = [[_value(search, score), job.cell.name, *map(str, job.cell.parts)] for score, job in ranked[:SHOWN]]
    dropped = sum(read_json(job.place / RESULT) is not None for job in jobs) - len(ranked)
    unit = f"{60 * stage.budget:.3g} s" if search.terms.minutes is not None else f"{stage.budget:g} steps"
    said = f"{len(jobs)} candidates of {unit} each, {dropped} dropped because they diverged."
    shown = table([f"valid {search.metric}", *HEAD[2:]], lines) if lines else ""
    return section(stage.name, f"<p>{escaped(said)}</p>" if jobs else "", shown)


def _graphs(search: Search) -> str:
    """The graphs of the best cells of the highest rung that has any."""
    ranked: list[tuple[float, Job]] = next(filter(None, map(search.ranked, reversed(search.stages[1:]))), [])
    if not has_matplotlib():
        return ""
    drawn = [
        figure(cell_graph(job.cell), f"{job.cell.name}, {job.stage.name}: {search.metric} {_value(search, score)}")
        for score, job in ranked[:DRAWN]
    ]
    return figures(*drawn)


def _chart(search: Search) -> str:
    """The value of every candidate of the first rung, and the best so far."""
    done = sorted(search.ranked(search.stages[1]), key=lambda pair: pair[1].number)
    if not done or not has_matplotlib():
        return ""
    metric, best, points, lowest = search.metric, [], [], done[0][0]
    for score, job in done:
        lowest = min(lowest, score)
        points.append((job.number + 1, metric.scaled(metric.judged(score))))
        best.append((job.number + 1, metric.scaled(metric.judged(lowest))))
    lines = [Series("candidate", points), Series("best so far", best)]
    chart = line_chart("Validation in the first rung", lines, "candidate", metric.axis, log=metric.logarithmic)
    return figures(figure(chart))
