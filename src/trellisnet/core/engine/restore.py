"""What the backward pass needs of the levels and does not find kept: recomputed, one segment of layers at a time."""

from __future__ import annotations

from torch import Tensor

from trellisnet.core.engine.forward import Layers
from trellisnet.core.engine.storage import Kept, Level, Workspace


class Restorer:
    """States and gates of the layers of one segment, between two kept levels."""

    levels: dict[int, Level]  # memories, and hidden states where layers are run again
    gates: dict[int, list[Tensor]]  # by layer, one tensor per block

    def __init__(self, layers: Layers, kept: Kept, workspace: Workspace) -> None:
        self.layers, self.kept, self.workspace, self.call = layers, kept, workspace, layers.call

    def open(self, start: int, stop: int) -> None:
        """Recompute gates and memories of layers start..stop-1, as far as they are not kept."""
        self.levels, gates = self.workspace.segment(start, stop)
        self.gates = gates or self.kept.gates
        if start == 0:
            self.levels[0] = self.layers.open(0, self.levels.get(0, Level(None, None)))
        else:
            self.levels[start] = Level(self.kept.hidden.get(start), self.kept.memory.get(start))
        for i in range(start, stop):
            below, above = self.levels[i], self.layers.open(i + 1, self.levels[i + 1])
            if gates:
                self.layers.run(i, below, above, gates[i], [])
            elif above.c is not None:
                self.layers.remember(i, below.c, above.c, self.gates[i])

    def hidden(self, level: int) -> Tensor | None:
        """The hidden state of a level of the segment (None: zeros), valid until the next is asked for."""
        if self.workspace.hidden is None or level == 0:
            return self.levels[level].h
        hidden = self.workspace.hidden[: self.call.plan.levels[level].rows]
        self.layers.open(level, Level(hidden, None))
        self.layers.expose(level - 1, self.levels[level].c, hidden, self.gates[level - 1])
        return hidden
