"""Progress bars on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar:
    """How far a piece of work is."""

    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars, self._task = bars, task

    def of(self, total: int) -> None:
        """Say how much there is to do; 0 means that nobody knows."""
        self._bars.update(self._task, total=total or None)

    def add(self, amount: int) -> None:
        """Say that so much more is done."""
        self._bars.advance(self._task, amount)

    def restart(self) -> None:
        """Begin again from nothing."""
        self._bars.update(self._task, completed=0)


@contextmanager
def progress(description: str, total: int | None = None, unit: str = "bytes") -> Iterator[Bar]:
    """A bar on standard error that vanishes when the work is done; `unit` is "bytes" or what is counted."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TimeRemainingColumn  # noqa: PLC0415

    console = Console(stderr=True)
    amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = ("{task.description}", BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        yield Bar(bars, bars.add_task(description, total=total))
