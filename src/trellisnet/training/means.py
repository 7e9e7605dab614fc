"""Means over the steps since the last entry in metrics.jsonl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RunningMeans:
    """The mean training loss and the means of its parts, weighted by units.

    >>> means = RunningMeans()
    >>> means.add(2.0, {"main": 1.5, "aux": 0.5}, units=1)
    >>> means.add(1.0, {"main": 1.0, "aux": 0.0}, units=3)
    >>> means.take()
    {'loss': 1.25, 'parts': {'main': 1.125, 'aux': 0.125}}
    >>> bool(means)
    False
    """

    def __init__(self) -> None:
        self.loss, self.units = 0.0, 0.0
        self.parts: dict[str, float] = {}

    def __bool__(self) -> bool:
        return self.units > 0

    def add(self, loss: float, parts: Mapping[str, float], units: int) -> None:
        """Add a step."""
        self.loss += loss * units
        self.units += units
        for name, part in parts.items():
            self.parts[name] = self.parts.get(name, 0.0) + part * units

    def take(self) -> dict[str, Any]:
        """Return the means for an entry in metrics.jsonl, and reset them. A single part is omitted."""
        means: dict[str, Any] = {"loss": self.loss / self.units}
        if len(self.parts) > 1:
            means["parts"] = {name: value / self.units for name, value in self.parts.items()}
        self.load_state_dict({"loss": 0.0, "units": 0.0, "parts": {}})
        return means

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"loss": self.loss, "units": self.units, "parts": dict(self.parts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        self.loss, self.units, self.parts = state["loss"], state["units"], dict(state["parts"])
