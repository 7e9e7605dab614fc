"""SIGINT and SIGTERM during a run: a training step is completed first, all other work stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """The run received a signal to stop; it can be resumed."""


class Signals:
    """Whether a run has received a signal to stop.

    Attributes:
        stopping: a signal has arrived.
    """

    def __init__(self) -> None:
        self.stopping = False
        self._at_once = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch the signals during the context, in the main thread."""
        with handled(self._stop):
            yield

    @contextmanager
    def at_once(self, allowed: bool = True) -> Iterator[None]:
        """Work that a signal interrupts: it changes nothing that a checkpoint has.

        Args:
            allowed: with False, the work is completed: other processes wait for its result.

        Raises:
            Interrupted: a signal arrives in the context, or has arrived before.
        """
        if self.stopping and allowed:
            raise Interrupted
        self._at_once = allowed
        try:
            yield
        finally:
            self._at_once = False

    def _stop(self, number: int, frame: object) -> None:
        self.stopping = True
        if self._at_once:
            raise Interrupted


@contextmanager
def handled(handler: Callable[[int, object], None], numbers: tuple[signal.Signals, ...] = NUMBERS) -> Iterator[None]:
    """Call `handler` for these signals during the context; only the main thread can."""
    here = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if here}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
