"""The paper's tables 1 to 4 and others: published results of all systems, our recipes for them, and our results."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trellisnet.training.metrics import STANDARD, Metric
from trellisnet.training.values import as_text, load_yaml

FILE = Path(__file__).parents[1] / "tables.yaml"
HEAD = ("system", "size", "published", "ours", "command")
NOT_RUN = "not run"


@dataclass(frozen=True)
class Ours:
    """A result of ours.

    Args:
        result: on the test split.
        parameters: of the model, in millions.
        command: the command that trained it.
        date: day of the result.
        machine: the machine that trained it.
    """

    result: float
    parameters: float
    command: str
    date: str
    machine: str


@dataclass(frozen=True)
class Row:
    """A row of a table; the head of tables.yaml describes the attributes."""

    system: str
    citation: str
    size: float | None
    published: float | None
    body: str
    recipe: str
    overrides: Mapping[str, Any]
    ours: Ours | None
    evaluate: Mapping[str, Any] = field(default_factory=dict)
    note: str | None = None

    @property
    def flags(self) -> list[str]:
        """The overrides as flags of `trellisnet train`."""
        return [part for key, value in self.overrides.items() for part in (f"--{key}", as_text(value))]

    @property
    def command(self) -> str:
        """The command that trains our version."""
        return shlex.join(["trellisnet", "train", self.recipe, *self.flags])


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper; the pixel tasks of table 4 are three.

    Args:
        table: its number in the paper; None if it is not of the paper.
        title: the task.
        data: name of the dataset.
        metric: name of the metric.
        rows: one per system.
        options: options of the dataset that the results belong to.
    """

    table: int | None
    title: str
    data: str
    metric: str
    rows: tuple[Row, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """The title with its number."""
        return f"Beyond the paper: {self.title}" if self.table is None else f"Table {self.table}: {self.title}"

    @property
    def measure(self) -> Metric:
        """The metric with its format."""
        return STANDARD[self.metric]

    def texts(self) -> Iterator[tuple[str, ...]]:
        """The rows as texts, in the columns `HEAD`."""
        for row in self.rows:
            published = "-" if row.published is None else self.measure.formatted(row.published)
            ours = NOT_RUN
            if row.ours is not None:
                ours = f"{self.measure.formatted(row.ours.result)} ({row.ours.parameters:g}M)"
            size = "-" if row.size is None else f"{row.size:g}M"
            command = row.ours.command if row.ours is not None else row.command
            yield f"{row.system} ({row.citation})", size, published, ours, command


def load_tables() -> list[PaperTable]:
    """Read the tables of the package."""
    return [
        PaperTable(**{**table, "rows": tuple(_row(values) for values in table["rows"])})
        for table in load_yaml(FILE.read_text(encoding="utf-8"))
    ]


def _row(values: Mapping[str, Any]) -> Row:
    ours = values["ours"]
    return Row(**{**values, "ours": None if ours is None else Ours(**ours)})


def published(data: str, body: str, options: Mapping[str, Any] | None = None) -> list[Row]:
    """The rows with published results of systems with a body on a dataset with its options."""
    given = dict(options or {}).items()
    tables = [table for table in load_tables() if table.data == data and table.options.items() <= given]
    return [row for table in tables for row in table.rows if row.body == body and row.published is not None]


def as_markdown(tables: list[PaperTable]) -> str:
    """The tables as Markdown; docs/field.md contains this text."""
    parts = []
    for table in tables:
        direction = "higher" if table.measure.higher_is_better else "lower"
        parts.append(f"### {table.heading}\n\n{table.metric.capitalize()}, {direction} is better.\n")
        parts.append(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
        for row, texts in zip(table.rows, table.texts(), strict=True):
            flags = " ".join(f"--{name} {as_text(value)}" for name, value in row.evaluate.items())
            more = [f"then `trellisnet evaluate RUN {flags}`"] if flags else []
            more += [row.note] if row.note else []
            more += [] if row.ours is None else [f"{row.ours.date}, {row.ours.machine}"]
            parts.append(f"| {' | '.join(texts[:-1])} | {'; '.join([f'`{texts[-1]}`', *more])} |")
        parts.append("")
    return "\n".join(parts)
