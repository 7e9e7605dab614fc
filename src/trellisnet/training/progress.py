"""Progress of a run: a live line on a terminal, plain lines elsewhere, and messages in the log."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from trellisnet.training.metrics import in_one_line

PLAIN_SECONDS = 15.0  # between plain lines


class Progress:
    """Reports the progress of training.

    Args:
        total: steps of the whole run.
        unit: unit of throughput: tokens or sequences.
        log: writes a line to the run's log.
        quiet: print and log nothing, for all processes but the first.
    """

    def __init__(self, total: int, unit: str, log: Callable[[str], None], quiet: bool = False) -> None:
        self.total, self.unit, self.log, self.quiet = total, unit, log, quiet
        self.rate = 0.0  # units per second, a running mean
        self.loss = 0.0
        self.shown_at = time.monotonic()
        self._live: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
            from rich.progress import Progress as Live  # noqa: PLC0415

            columns = TextColumn("step"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}")
            self._live = Live(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            self._task = self._live.add_task("", total=self.total)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def advance(self, step: int, loss: float, units: int, seconds: float, budget: float = math.inf) -> None:
        """Report a training step; `budget` is the number of seconds after which training stops."""
        if self.quiet:
            return
        speed = units / max(seconds, 1e-9)
        self.rate = speed if not self.rate else 0.95 * self.rate + 0.05 * speed
        self.loss = loss if not self.loss else 0.95 * self.loss + 0.05 * loss
        each = units / max(self.rate, 1e-9)
        total = self.total if budget == math.inf else min(self.total, step + round(budget / each))
        if self._live is not None:
            self._live.update(self._task, completed=step, total=total, description=self._now())
        elif time.monotonic() - self.shown_at > PLAIN_SECONDS:
            self.shown_at = time.monotonic()
            left = _duration((total - step) * each)
            print(f"step {step} of {total}, {self._now()}, {left} left", file=sys.stderr, flush=True)

    def _now(self) -> str:
        return f"loss {self.loss:.4f}, {self.rate:,.0f} {self.unit}/s"

    def epoch(self, epoch: float, metrics: Mapping[str, float], learning_rate: float) -> None:
        """Report the validation of an epoch."""
        speed = f"{self.rate:,.0f} {self.unit}/s"
        self.say(f"epoch {epoch:g}: valid {in_one_line(metrics)}; learning rate {learning_rate:.4g}, {speed}")

    def say(self, text: str) -> None:
        """Print a message and write it to the log."""
        if self.quiet:
            return
        self.log(text)
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds.

    >>> _duration(75), _duration(7500)
    ('1:15 min', '2:05 h')
    """
    if seconds < 3600:
        return f"{int(seconds // 60)}:{int(seconds % 60):02d} min"
    return f"{int(seconds // 3600)}:{int(seconds % 3600 // 60):02d} h"
