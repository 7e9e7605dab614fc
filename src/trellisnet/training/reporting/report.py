"""A run's report: one HTML file with its result and the paper's, its curves, and the command to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trellisnet.files import replacing
from trellisnet.training.config import About
from trellisnet.training.metrics import ITERATIONS, MOST_ITERATIONS, Metric
from trellisnet.training.reporting.drawing import MISSING, has_matplotlib
from trellisnet.training.reporting.figures import Series, heat_map, line_chart, scatter_chart
from trellisnet.training.reporting.intervals import interval_chart
from trellisnet.training.reporting.pages import escaped, figure, figures, page, section, table, verbatim
from trellisnet.training.reporting.summary import Summary, formatted, formatted_count, summarise
from trellisnet.training.runs import CONFIG, TASK, Run

REPORT = "report.html"
MOST_CLASSES = 100  # larger confusion matrices are not readable
FALLING = ("plateau", "steps")  # schedules that divide the learning rate: drawn on a log scale


def write_report(run: Run) -> Path:
    """Write `report.html` to a run's folder, finished or not; return its path.

    Without matplotlib the report has tables only, and a sentence that explains how to install it.
    """
    summary, drawn = summarise(run), has_matplotlib()
    title = run.config.about.title or summary.name
    content = page(
        title,
        f"<h1>{escaped(title)}</h1>\n<p>{escaped(_one_line(summary))}</p>",
        section("Result", _result(summary)),
        section("Learning curves", _curves(summary) if drawn else f"<p class='soft'>The {escaped(MISSING)}</p>"),
        section("Quality over depth", *_depths(summary, drawn)),
        section("Samples", *_samples(summary.result.get("samples") or [])),
        section("Attention", *(_attention(each) for each in summary.result.get("attention") or [] if drawn)),
        section("Confusion matrix", _confusion(summary.result.get("confusion")) if drawn else ""),
        section("Predictions", _predictions(summary.result.get("predictions")) if drawn else ""),
        section("Prediction intervals", _intervals(summary.result.get("intervals") or []) if drawn else ""),
        section("History", *(f"<p>This run was {escaped(sentence)}.</p>" for sentence in _history(run))),
        section("Repeat it", *_commands(run, summary)),
        section("Configuration", _configuration(run)),
        section("Environment", environment_table(summary.environment)),
    )
    path = run.folder / REPORT
    with replacing(path) as (file,):
        file.write_text(content, encoding="utf-8")
    return path


def _history(run: Run) -> list[str]:
    from trellisnet.training.continuing import history  # noqa: PLC0415

    return history(run.read_json(TASK) or {})


def _one_line(summary: Summary) -> str:
    """The dataset, the number of steps, and the result so far."""
    training = summary.config.training
    start = f"{summary.name}: a {summary.model or 'trellis network'} on {summary.dataset}"
    if summary.result:
        test = summary.final("test")
        split, value = ("test", test) if test is not None else ("validation", summary.final("valid"))
        return f"{start}, {summary.steps:,} steps in {summary.epochs} epochs; " + (
            "finished." if value is None else f"{split} {summary.metric} {formatted(value, summary.metric)}."
        )
    best = summary.best()
    so_far = f"; best validation {summary.metric} {formatted(best[1], summary.metric)}" if best else ""
    return f"{start}, not finished: {summary.steps:,} steps, {summary.epochs} of {training.epochs} epochs{so_far}."


def _result(summary: Summary) -> str:
    """A table of the final metrics, beginning with the one that the paper reports."""
    about, metric = summary.config.about, summary.metric
    splits: Mapping[str, Mapping[str, float]] = summary.result.get("metrics", {})
    names = dict.fromkeys(name for found in splits.values() for name in found if name != str(metric))
    others = [summary.metrics.get(name) or Metric(name) for name in names]
    best = summary.best()
    valid = summary.final("valid") if summary.result else best[1] if best else None
    name = str(metric or "metric")
    rows = [[name, formatted(valid, metric), formatted(summary.final("test"), metric)]]
    rows += [
        [other.name, *(formatted(summary.final(split, other), other) for split in ("valid", "test"))]
        for other in others
    ]
    rows += [
        [f"{each} of the naive forecast, {name}", *(formatted(value, each) for value in summary.naive(name, each))]
        for name in dict.fromkeys(name for found in summary.result.get("naive", {}).values() for name in found)
        for each in (metric, *others)
        if each is not None
    ]
    rows += [["parameters", "", formatted_count(summary.result.get("parameters"))]]
    paper = {name: formatted(about.paper_result, metric), "parameters": _paper_parameters(about)}
    shown = [[*row, paper.get(row[0], "-")] for row in rows]
    protocol = summary.result.get("protocol")
    notes = [f"<p class='soft'><strong>Evaluation</strong> &nbsp;{escaped(protocol)}</p>"] if protocol else []
    if splits and "valid" not in splits:  # then training validates on the test split
        notes.append("<p>There is no validation split: the best epoch was chosen by the test split.</p>")
    return table(["", "ours, valid", "ours, test", "paper, test"], shown, numbers=True) + "".join(notes)


def _paper_parameters(about: About) -> str:
    return "-" if about.paper_parameters is None else f"{about.paper_parameters:g} M"


def _curves(summary: Summary) -> str:
    if not summary.losses and not summary.valid:
        return "<p class='soft'>Nothing has been measured yet.</p>"
    rate_log = summary.config.training.schedule in FALLING
    rates = line_chart("Learning rate", [Series("", summary.rates)], "step", log=rate_log)
    best = summary.best()
    caption = f"Best: {formatted(best[1], summary.metric)} after epoch {best[0]}." if best and summary.metric else ""
    return figures(
        figure(loss_chart([Series("", summary.losses)]), "With dropout and all parts of the loss."),
        figure(_validation(summary), caption) if summary.metric else "",
        figure(_parts(summary), "The training loss is their sum.") if len(summary.parts) > 1 else "",
        figure(rates) if summary.rates else "",
        _iterations(summary),
    )


def _iterations(summary: Summary) -> str:
    """The iterations of the validations of a model that iterates until it converges."""
    shown = {"mean": Metric(ITERATIONS), "most": Metric(MOST_ITERATIONS)}
    series = [Series(name, points) for name, metric in shown.items() if (points := summary.curve(metric))]
    if not series:
        return ""
    caption = "Layers of a call of the validation, until no hidden state changed by more than model.tolerance."
    return figure(line_chart("Iterations per call", series, "step", "iterations"), caption)


def _parts(summary: Summary) -> str:
    series = [Series(name, points) for name, points in summary.parts.items()]
    return line_chart("Parts of the training loss", series, "step", "loss", log=True)


def _validation(summary: Summary) -> str:
    assert summary.metric is not None
    points, paper = summary.curve(summary.metric), summary.config.about.paper_result
    if paper is None or not points:
        return validation_chart(summary.metric, [Series("", points)])
    level = Series("the paper, test", [(points[0][0], paper), (points[-1][0], paper)], reference=True)
    return validation_chart(summary.metric, [Series("validation", points), level])


def loss_chart(series: Sequence[Series]) -> str:
    """Training losses over steps."""
    return line_chart("Training loss", series, "step", "loss")


def validation_chart(metric: Metric, series: Sequence[Series], over: str = "step") -> str:
    """A validation metric over steps, or over something else."""
    series = [replace(one, points=[(x, metric.scaled(y)) for x, y in one.points]) for one in series]
    title = f"Validation {metric}" if over == "step" else f"Validation {metric} over {over}"
    return line_chart(title, series, over, metric.axis, log=metric.logarithmic)


def _depths(summary: Summary, drawn: bool) -> list[str]:
    """The validation of the best model at several depths, as a chart and a table."""
    metric = summary.metric
    points = [(depth, found[metric.name]) for depth, found in summary.depths if metric and metric.name in found]
    if metric is None or not points:
        return []
    ranges = [depth for _, depth in summary.config.training.depths if isinstance(depth, tuple)]
    trained = " and ".join(f"{lowest} to {highest}" for lowest, highest in ranges)
    caption = f"Best model, validation. Trained at depths {trained}, drawn anew for every step."
    rows = [[depth, formatted(value, metric)] for depth, value in points]
    shown = [Series("", [(depth, metric.scaled(value)) for depth, value in points])]
    title = f"Validation {metric} over depth"
    chart = line_chart(title, shown, "depth", metric.axis, log=metric.logarithmic) if drawn else ""
    return [
        figure(chart, caption) if drawn else f"<p class='soft'>{escaped(caption)}</p>",
        table(["depth", metric], rows, numbers=True),
    ]


def _samples(samples: Sequence[Mapping[str, str]]) -> list[str]:
    return [
        (f"<p class='soft'>After <q>{escaped(sample['prompt'])}</q></p>" if sample.get("prompt") else "")
        + verbatim(sample["text"])
        for sample in samples
    ]


def _confusion(confusion: Mapping[str, Any] | None) -> str:
    if not confusion:
        return ""
    labels = [str(label) for label in confusion["labels"]]
    if len(labels) > MOST_CLASSES:
        return f"<p>{len(labels)} classes are too many to draw; result.json has the counts.</p>"
    drawing = heat_map("Which class was taken for which", labels, confusion["counts"], "predicted", "true")
    return figure(drawing, "The stronger the colour, the larger the share of the row.")


def _attention(alignment: Mapping[str, Any]) -> str:
    source, target, weights = (alignment[name] for name in ("source", "target", "weights"))
    title = "What each token of the translation reads"
    drawing = heat_map(title, target, weights, "source", "translation", columns=source)
    return figure(drawing, "Shares of the attention over the source sentence, the mean over the heads.")


def _predictions(predictions: Mapping[str, Sequence[float]] | None) -> str:
    if not predictions:
        return ""
    pairs = list(zip(predictions["target"], predictions["predicted"], strict=True))
    return figure(scatter_chart("Predictions against targets", pairs, "target", "predicted"), "Dashed: no error.")


def _intervals(shown: Sequence[Mapping[str, Any]]) -> str:
    return figures(*(figure(interval_chart(each)) for each in shown)) if shown else ""


def _commands(run: Run, summary: Summary) -> list[str]:
    command = [str(part) for part in summary.environment.get("command", [])]
    if command[1:2] == ["train"]:  # the program may have been started as a module or by torchrun
        command = ["trellisnet", *command[1:]]
    parts = [verbatim(shlex.join(command))] if command else []
    if any(part.split("=")[0] == "--to" for part in command):
        parts.append("<p class='soft'>--to must name a new folder.</p>")
    if not summary.result:
        resuming = shlex.join(["trellisnet", "train", "--resume", str(run.folder)])
        parts += ["<p>Or resume where it stopped:</p>", verbatim(resuming)]
    return parts


def _configuration(run: Run) -> str:
    content = (run.folder / CONFIG).read_text(encoding="utf-8")
    return f"<details><summary>All values ({CONFIG})</summary>{verbatim(content)}</details>"


def environment_table(environment: Mapping[str, Any]) -> str:
    """The facts about a run's machine and versions, without its command."""
    rows = [[name, "-" if value is None else value] for name, value in environment.items() if name != "command"]
    return table([], rows) if rows else ""
