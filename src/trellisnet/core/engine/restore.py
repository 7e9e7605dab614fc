"""What the backward pass needs of the levels and does not find kept: recomputed, one segment of layers at a time."""

from __future__ import annotations

from torch import Tensor

from trellisnet.core.engine.forward import Layers
from trellisnet.core.engine.storage import Kept, Level, Scratch


class Restorer:
    """States and gates of the layers of one segment, between two kept levels."""

    levels: dict[int, Level]  # memories, and hidden states where layers are run again
    gates: dict[int, list[Tensor]]  # by layer, one tensor per block

    def __init__(self, layers: Layers, kept: Kept, scratch: Scratch) -> None:
        self.layers, self.kept, self.scratch, self.call = layers, kept, scratch, layers.call
        self.revealed = None if self.call.recompute else self._empty(max(level.rows for level in self.call.plan.levels))
        self.first_free = scratch.used  # from here on, one segment overwrites the other

    def open(self, start: int, stop: int) -> None:
        """Recompute gates and memories of layers start..stop-1, as far as they are not kept."""
        self.scratch.used = self.first_free
        self.gates = dict(self.kept.gates)
        self.levels = {start: Level(self.kept.hidden.get(start), self.kept.memory.get(start))}
        if start == 0:
            self.levels[0] = self.layers.open(0, self._empty_level(0))
        for i in range(start, stop):
            above = self.levels[i + 1] = self.layers.open(i + 1, self._empty_level(i + 1))
            if self.call.recompute:
                rows = self.call.plan.layers[i].rows
                self.gates[i] = [self._empty(rows, width) for width in self.call.gate_widths]
                self.layers.run(i, self.levels[i], above, self.gates[i], [])
            elif above.c is not None:
                self.layers.remember(i, self.levels[i].c, above.c, self.gates[i])

    def hidden(self, level: int) -> Tensor | None:
        """The hidden state of a level of the segment (None: zeros), valid until the next is asked for."""
        if self.revealed is None or level == 0:
            return self.levels[level].h
        storage = self.revealed[: self.call.plan.levels[level].rows]
        self.layers.open(level, Level(storage, None))
        self.layers.expose(level - 1, self.levels[level].c, storage, self.gates[level - 1])
        return storage

    def _empty_level(self, level: int) -> Level:
        if level == 0 and self.call.zero_below:
            return Level(None, None)
        rows, whole = self.call.plan.levels[level].rows, self.call.recompute or level == 0
        return Level(self._empty(rows) if whole else None, self._empty(rows) if self.call.cell.has_memory else None)

    def _empty(self, rows: int, width: int | None = None) -> Tensor:
        return self.scratch.take(rows, self.call.batch, width or self.call.width)
