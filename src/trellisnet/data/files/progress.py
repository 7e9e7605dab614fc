"""Progress bars on a terminal; no output elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar:
    """The progress of one piece of work."""

    def __init__(self, bars: Progress, task: TaskID) -> None:
        self._bars, self._task = bars, task

    def set_total(self, total: int) -> None:
        """Set the total amount of work; 0: unknown."""
        self._bars.update(self._task, total=total or None)

    def add(self, amount: int) -> None:
        """Add an amount of completed work."""
        self._bars.advance(self._task, amount)

    def restart(self) -> None:
        """Reset the completed work to 0."""
        self._bars.update(self._task, completed=0)


@contextmanager
def progress(description: str, total: int | None = None, unit: str = "bytes") -> Iterator[Bar]:
    """Show a progress bar on standard error, which disappears at the end.

    Args:
        description: text beside the bar.
        total: amount of work, if it is known.
        unit: "bytes" shows sizes; any other unit shows plain counts.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TimeRemainingColumn  # noqa: PLC0415

    console = Console(stderr=True)
    amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = ("{task.description}", BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        yield Bar(bars, bars.add_task(description, total=total))
