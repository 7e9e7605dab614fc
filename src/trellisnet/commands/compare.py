"""`trellisnet compare`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trellisnet.commands.printing import print_table

if TYPE_CHECKING:
    from trellisnet.training.reporting.summary import Summary

HEAD = ("run", "dataset", "parameters", "epochs", "metric", "best valid", "test", "paper")
TEXTS = ("run", "dataset", "metric")  # columns that are not numbers


def compare(runs: list[str], *, plot: str | None = None) -> None:
    """Compare several runs in a table and, with `--plot`, in charts.

    Examples: `trellisnet compare runs/demo-1 runs/demo-2`, `trellisnet compare runs/* --plot curves.html`.

    Args:
        runs: folders of runs, or names of pretrained models.
        plot: new HTML file with one chart of training losses and one per validation metric; needs the extra `plots`.
    """
    from trellisnet.models.shipped import find_run  # noqa: PLC0415
    from trellisnet.training.reporting.summary import summarise  # noqa: PLC0415
    from trellisnet.training.runs import Run  # noqa: PLC0415

    if plot is not None:
        _check_plot(Path(plot))
    summaries = [summarise(Run.open(find_run(run))) for run in runs]
    names = _names(runs, summaries)
    rows = [_row(name, summary) for name, summary in zip(names, summaries, strict=True)]
    print_table(HEAD, rows, TEXTS)
    note = _difference(summaries)
    if note is not None:
        print(f"note: {note}", file=sys.stderr)
    if plot is not None:
        _write_plot(Path(plot), names, summaries, rows, note)
        print(f"curves: {plot}")


def _check_plot(path: Path) -> None:
    from trellisnet.training.reporting.drawing import MISSING, has_matplotlib  # noqa: PLC0415

    if path.suffix not in (".html", ".htm"):
        raise ValueError(f"--plot writes a web page: its name must end with .html, got {path}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"--plot {path}: the folder {path.parent} does not exist")
    if path.exists():
        raise FileExistsError(f"--plot must be a new file, got {path}, which exists")
    if not has_matplotlib():
        raise ImportError(f"--plot {path}: {MISSING}")


def _names(runs: Sequence[str], summaries: Sequence[Summary]) -> list[str]:
    """The names of the folders; for folders with the same name, their paths."""
    count = Counter(summary.name for summary in summaries)
    return [one.name if count[one.name] == 1 else path for path, one in zip(runs, summaries, strict=True)]


def _row(name: str, summary: Summary) -> list[str]:
    from trellisnet.training.reporting.summary import formatted, formatted_count  # noqa: PLC0415

    best, metric, planned = summary.best(), summary.metric, summary.config.training.epochs
    return [
        name,
        summary.dataset,
        formatted_count(summary.result.get("parameters")),
        str(summary.epochs) if summary.result else f"{summary.epochs} of {planned}",
        str(metric or "-"),
        formatted(best[1] if best else None, metric),
        formatted(summary.final("test"), metric),
        formatted(summary.config.about.paper_result, metric),
    ]


def _difference(summaries: Sequence[Summary]) -> str | None:
    """The reason why the results of these runs are not comparable, or None."""
    kinds: dict[str, set[str | None]] = {
        "metric": {str(summary.metric) if summary.metric else None for summary in summaries},
        "dataset": {summary.dataset for summary in summaries},
        "evaluation": {summary.result.get("protocol") for summary in summaries},
    }
    known = {kind: sorted(value for value in values if value is not None) for kind, values in kinds.items()}
    different = [f"{kind} ({' / '.join(values)})" for kind, values in known.items() if len(values) > 1]
    return f"results cannot be compared, since the runs differ in {', '.join(different)}" if different else None


def _write_plot(
    path: Path, names: Sequence[str], summaries: Sequence[Summary], rows: Sequence[Sequence[str]], note: str | None
) -> None:
    """Write all curves to one page."""
    from trellisnet.files import replacing  # noqa: PLC0415
    from trellisnet.training.reporting.figures import Series  # noqa: PLC0415
    from trellisnet.training.reporting.pages import escaped, figure, figures, page, section, table  # noqa: PLC0415
    from trellisnet.training.reporting.report import loss_chart, validation_chart  # noqa: PLC0415

    named = list(enumerate(zip(names, summaries, strict=True)))
    charts = [
        validation_chart(
            metric, [Series(name, one.curve(metric), colour=i) for i, (name, one) in named if one.metric == metric]
        )
        for metric in dict.fromkeys(one.metric for one in summaries)
        if metric is not None
    ]
    charts.append(loss_chart([Series(name, one.losses) for _, (name, one) in named]))
    title = "1 run" if len(named) == 1 else f"{len(named)} runs compared"
    content = page(
        title,
        f"<h1>{escaped(title)}</h1>",
        section("Results", table(HEAD, rows), f"<p class='soft'>Note: {escaped(note)}.</p>" if note else ""),
        section("Learning curves", figures(*map(figure, charts))),
    )
    with replacing(path) as (file,):
        file.write_text(content, encoding="utf-8")
