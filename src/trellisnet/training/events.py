"""A run's metrics as TensorBoard events."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

COORDINATES = ("epoch", "step", "seconds")  # keys of an entry that are positions, not metrics


class Events:
    """A folder of TensorBoard events, written from the entries of metrics.jsonl.

    Args:
        folder: its content is replaced, because events cannot be removed and a resumed run starts from a checkpoint
            that may be older than the last events.
        entries: the existing entries.
    """

    def __init__(self, folder: Path, entries: Iterable[Mapping[str, Any]]) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter  # noqa: PLC0415

        shutil.rmtree(folder, ignore_errors=True)
        self._writer = SummaryWriter(folder)
        for entry in entries:
            self.add(entry)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Write the values of an entry."""
        for name, value in scalars({key: value for key, value in entry.items() if key not in COORDINATES}):
            self._writer.add_scalar(name, value, entry["step"])
        self._writer.flush()

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()


def scalars(values: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, float]]:
    """Nested values by slash-separated names, which TensorBoard groups; top-level values get the group training.

    >>> dict(scalars({"loss": 1.5, "valid": {"bits": 2.0}, "best": {"test": {"bits": 2.5}}}))
    {'training/loss': 1.5, 'valid/bits': 2.0, 'best/test/bits': 2.5}
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from scalars(value, f"{group}{name}/")
        else:
            yield f"{group or 'training/'}{name}", value
