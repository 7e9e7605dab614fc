"""The stream of a run's metrics, as trackers receive it.

A tracker is a class of `trellisnet.training.trackers.TRACKERS`, with an instance per run:

    Tracker(name, folder, config, identity)   opens the run's record; `identity` is that of an earlier opening, or None
    identity                                  what finds the record again, a text
    log(values, step)                         values by slash-separated names
    close()

Entries are counted as lines of metrics.jsonl. A resumed run sends only those that were not sent before, to the same
record; a tracker with `replays = True` starts a new record and receives all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

COORDINATES = ("epoch", "step", "seconds")  # keys of an entry that are positions, not metrics


class Tracker(Protocol):
    """The record of one run in some tool."""

    identity: str

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Add values at a training step."""

    def close(self) -> None:
        """Complete the record; it may be opened again."""


class Events:
    """The way of the entries to one tracker.

    A tracker that fails does not end the run: it gets no further entries, until the run is resumed.

    Args:
        kind: the class of the tracker.
        name: name of the run.
        folder: folder of the run.
        config: configuration of the run, by dotted names.
        entries: the existing entries.
        known: what `known` was when the run was tracked before.
        say: reports a failure.

    Attributes:
        known: identity of the record, and number of entries that were sent to it.
    """

    def __init__(
        self,
        kind: Any,
        name: str,
        folder: Path,
        config: Mapping[str, Any],
        entries: Iterable[Mapping[str, Any]],
        known: Mapping[str, Any] | None,
        say: Callable[[str], object],
    ) -> None:
        before = None if kind.replays else known
        self._tracker: Tracker | None = kind(name, folder, config, None if before is None else before["identity"])
        assert self._tracker is not None
        self.known = {"identity": self._tracker.identity, "entries": 0 if before is None else before["entries"]}
        self._say, self._number = say, 0
        for entry in entries:
            self.add(entry)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Send the values of the next entry, unless they were sent before."""
        self._number += 1
        if self._tracker is None or self._number <= self.known["entries"]:
            return
        values = dict(scalars({key: value for key, value in entry.items() if key not in COORDINATES}))
        if self._call(self._tracker.log, values, entry["step"]):
            self.known["entries"] = self._number

    def close(self) -> None:
        """Complete the record."""
        if self._tracker is not None:
            self._call(self._tracker.close)
            self._tracker = None

    def _call(self, method: Callable[..., None], *args: Any) -> bool:
        try:
            method(*args)
        except Exception as error:
            what = " ".join(f"{type(error).__name__}: {error}".split())
            self._say(
                f"{type(self._tracker).__name__} failed, and gets no more metrics until the run is resumed: {what}"
            )
            self._tracker = None
            return False
        return True


def scalars(values: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, float]]:
    """Nested values by slash-separated names, which trackers group; top-level values get the group training.

    >>> dict(scalars({"loss": 1.5, "valid": {"bits": 2.0}, "best": {"test": {"bits": 2.5}}}))
    {'training/loss': 1.5, 'valid/bits': 2.0, 'best/test/bits': 2.5}
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from scalars(value, f"{group}{name}/")
        else:
            yield f"{group or 'training/'}{name}", value
