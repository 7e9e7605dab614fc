"""A run's metrics as TensorBoard reads them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

COORDINATES = ("epoch", "step")  # what an entry of the metrics is about, not what it tells


class Events:
    """A folder of events, beside the metrics and made of them.

    Args:
        folder: what is in it is replaced: events cannot be taken back, and a run that was interrupted goes on from a
            checkpoint that may be older than its last metrics.
        entries: the metrics so far.
    """

    def __init__(self, folder: Path, entries: Iterable[Mapping[str, Any]]) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter  # noqa: PLC0415

        shutil.rmtree(folder, ignore_errors=True)
        self._writer = SummaryWriter(folder)
        for entry in entries:
            self.add(entry)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Write what an entry of the metrics tells."""
        for name, value in scalars({key: value for key, value in entry.items() if key not in COORDINATES}):
            self._writer.add_scalar(name, value, entry["step"])
        self._writer.flush()

    def close(self) -> None:
        """No more will come."""
        self._writer.close()


def scalars(values: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, float]]:
    """Nested values by names that TensorBoard groups; what stands alone is of training.

    >>> dict(scalars({"loss": 1.5, "valid": {"bits": 2.0}, "best": {"test": {"bits": 2.5}}}))
    {'training/loss': 1.5, 'valid/bits': 2.0, 'best/test/bits': 2.5}
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from scalars(value, f"{group}{name}/")
        else:
            yield f"{group or 'training/'}{name}", value
