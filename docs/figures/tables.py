"""The tables of measurements, written into a page between marks: `<!-- NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from charts import CONTESTANTS, SHAPES, results
from contests import CONTESTS, label

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ABLATIONS = BENCHMARKS / "ablations.json"


def filled(page: str) -> str:
    """A page with all its tables as the measurements have them now."""

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}\n{TABLES[match[2]]()}\n{match[3]}"

    return re.sub(r"(<!-- ([a-z0-9-]+) -->)\n.*?(<!-- end -->)", table, page, flags=re.DOTALL)


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join(["", lines[0], "|---" * len(head) + "|", *lines[1:], ""])


def _by_shape(section: str, column: str, unit: str, ratio: str, digits: str) -> str:
    measured = {(row["shape"], row["contestant"]): row for row in results()[section]}
    rows = []
    for contestant, (name, _) in CONTESTANTS.items():
        cells = [measured[shape, contestant] for shape in SHAPES]
        rows.append([name, *(f"{cell[column]:{digits}} {unit} ({_times(cell[ratio])})" for cell in cells)])
    return _markdown(["", *(words[0] for words in SHAPES.values())], rows)


def _times(value: float) -> str:
    return f"{value:.3g}x"


def _training() -> str:
    return _by_shape("training", "seconds", "s", "speedup", ".2f")


def _memory() -> str:
    return _by_shape("memory", "MB", "MB", "of plain", ",")


def _streaming() -> str:
    rows = [
        [
            row["hidden x layers"],
            row["contestant"],
            f"{row['ms']:.3g}",
            _times(row["speedup"]),
            _times(row["times bare"]),
        ]
        for row in results()["streaming"]
    ]
    return _markdown(["width x layers", "", "ms", "faster than plain", "time of the bare products"], rows)


def _generation() -> str:
    rows = [
        [row["contestant"], f"{row['words/s']:.0f}", _times(row["of the stream's time"])]
        for row in results()["generation"]
    ]
    return _markdown(["a word by", "words a second", "time of the stream"], rows)


def _vocabulary() -> str:
    rows = [[f'`"{row["head"]}"`', f"{row['MB']:,}", _times(row["of softmax"])] for row in results()["vocabulary"]]
    return _markdown(["head", "MB", "memory of the softmax"], rows)


def _as_measured(section: str) -> Callable[[], str]:
    """The table of a section whose rows are as they shall be shown."""

    def table() -> str:
        rows = results()[section]
        texts = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row.values()] for row in rows]
        return _markdown(list(rows[0]), texts)

    return table


def _contest(path: Path) -> Callable[[], str]:
    """The table of a contest, the best by validation first."""

    def table() -> str:
        contest = json.loads(path.read_text(encoding="utf-8"))
        higher = contest["metric"] == "accuracy"
        form = {"perplexity": ".1f", "mse": ".2g"}.get(contest["metric"], ".3f")
        ran = [each for each in contest["contestants"] if each["valid"]["mean"] is not None]
        rows = [
            [
                label(each) if path.stem.endswith("-ways") else f"`{each['name']}`",
                f"{each['parameters'] / 1e6:.2f}M",
                f"{each['learning_rate']:g}{' (edge)' if each['at_edge'] else ''}",
                f"{statistics.mean(each['steps']):,.0f}",
                f"{1e3 * each['seconds_per_step']:.0f}",
                f"{1e6 * each['seconds_per_streamed_step']:.0f}",
                *(_over_seeds(each[split], form) for split in ("valid", "test")),
            ]
            for each in sorted(ran, key=lambda each: each["valid"]["mean"], reverse=higher)
        ]
        columns = ["parameters", "learning rate", "steps", "ms per step", "µs streamed", "valid", "test"]
        return _markdown(["contestant", *columns], rows)

    return table


def _over_seeds(result: dict[str, Any], form: str) -> str:
    """The mean, and the standard deviation if there are several seeds."""
    around = "" if result["spread"] is None else f" ± {result['spread']:{form}}"
    return f"{result['mean']:{form}}{around}"


def ablations(path: Path = ABLATIONS) -> str:
    """The table of the ablations, the largest effect in the paper first, with the place of every effect."""
    if not path.exists():
        return "\nNot run to the end yet.\n"
    full, *others = json.loads(path.read_text(encoding="utf-8"))["ablations"]
    ran = [each for each in others if each["test"]["mean"] is not None]
    changes = {each["name"]: each["test"]["mean"] - full["test"]["mean"] for each in ran}
    papers = {each["name"]: each["paper"] - full["paper"] for each in ran}
    places, papers_places = (sorted(effects, key=effects.__getitem__, reverse=True) for effects in (changes, papers))
    rows = []
    for each in [full, *sorted(ran, key=lambda each: each["paper"], reverse=True)]:
        name, test = each["name"], each["test"]
        effects = ["", "", "", ""]
        if each is not full:
            effects = [f"{changes[name]:+.1f}", f"{places.index(name) + 1}"]
            effects += [f"{papers[name]:+.2f}", f"{papers_places.index(name) + 1}"]
        rows.append([each["title"], f"{statistics.mean(each['steps']):,.0f}", _over_seeds(test, ".1f"), *effects])
    return _markdown(["variant", "steps", "perplexity", "change", "place", "paper's change", "paper's place"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "training": _training,
    "memory": _memory,
    "streaming": _streaming,
    "generation": _generation,
    "vocabulary": _vocabulary,
    "ablations": ablations,
    **{f"contest-{path.stem}": _contest(path) for path in CONTESTS.glob("*.json")},
    **{name: _as_measured(name) for name in ("training-paths", "streaming-paths", "fixed-point")},
}
