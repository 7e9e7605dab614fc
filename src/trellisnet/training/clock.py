"""The time of training, for runs with a time budget."""

from __future__ import annotations

import math
import time

from trellisnet.training.config import ClockName, TrainingConfig
from trellisnet.training.distribution import Workers


def now(clock: ClockName) -> float:
    """Seconds since some moment: of time, or of time that the cores spent on this process, all threads together."""
    return time.process_time() if clock == "cpu" else time.monotonic()


class Clock:
    """The time of training that a run has used, over all its resumptions. Evaluation and checkpoints do not count.

    Without a time budget it does nothing. Of several processes the first one's clock counts.
    """

    def __init__(self, config: TrainingConfig, workers: Workers) -> None:
        self.workers = workers
        self.name = config.clock
        self.budget = None if config.minutes is None else 60 * config.minutes
        self.interval = math.inf if config.evaluate_minutes is None else 60 * config.evaluate_minutes
        self.used = 0.0  # seconds
        self._since = 0.0

    def start(self) -> None:
        """Start to count."""
        self._since = now(self.name)

    def stop(self) -> bool:
        """Stop to count; return whether the time is up or an evaluation is due."""
        if self.budget is None:
            return False
        before = self.used
        self.used = self.workers.broadcast(self.used + now(self.name) - self._since)
        return self.is_up or self.used // self.interval > before // self.interval

    @property
    def is_up(self) -> bool:
        """Whether the budget is used up."""
        return self.budget is not None and self.used >= self.budget

    @property
    def share(self) -> float:
        """The share of the budget that is used; 0 without a budget."""
        return 0.0 if self.budget is None else min(1.0, self.used / self.budget)

    @property
    def left(self) -> float:
        """Seconds that are left; infinite without a budget."""
        return math.inf if self.budget is None else max(0.0, self.budget - self.used)
