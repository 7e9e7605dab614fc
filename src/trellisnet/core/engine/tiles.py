"""How the steps of a layer are cut into tiles, which are computed one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from trellisnet.core.engine.call import Pass
from trellisnet.core.plan import Rows

# A CPU computes a layer in tiles of about so many gates: what one operation leaves is still in cache for the next, and
# the scratch memory is small and used again instead of being fetched from the system in every layer. But matrix
# products want so many rows at least (of a couple of tiles, half as many each).
TILE = 1 << 21
TILE_ROWS = 1024


class Tile(NamedTuple):
    """Some of the steps that a layer computes: all from one to another, or every second of them."""

    start: int
    stop: int
    layer_rows: int  # how many steps the layer computes
    step: int
    gates: slice  # where its gates lie among those of the layer

    @property
    def rows(self) -> int:
        """How many steps there are."""
        return int(self.gates.stop - self.gates.start)

    def of(self, tensor: Tensor) -> Tensor:
        """Its part of a tensor whose last rows are the steps of the layer."""
        if self.rows == tensor.size(0):
            return tensor  # a layer asks a dozen times, and views that show everything cost time as well
        skipped = tensor.size(0) - self.layer_rows
        return tensor[skipped + self.start : skipped + self.stop : self.step]

    def of_gates(self, gates: Tensor, first: int = 0) -> Tensor:
        """Its part of the gates of the layer; `first`: where those that are there begin."""
        if self.rows == gates.size(0):
            return gates
        return gates[self.gates.start - first : self.gates.stop - first]

    def part(self, rows: Rows) -> Rows:
        """Its part of the rows that the layer reads."""
        if isinstance(rows, slice):
            return slice(rows.start + self.start, rows.start + self.stop, self.step)
        return rows[self.start : self.stop : self.step]


Tiles = tuple[Tile, ...]  # one tile, or a couple whose products are made together


def most_rows(call: Pass, batch: int, device: torch.device) -> int:
    """The most steps of a tile."""
    most = max(layer.rows for layer in call.plan.layers)
    if device.type != "cpu":
        return most
    rows = max(TILE_ROWS, TILE // sum(call.gate_widths))
    return min(most, max(1, rows // batch))


def cut(rows: int, most: int, in_couples: bool) -> Iterator[Tiles]:
    """All steps of a layer in tiles of so many at the most, or in couples: every second step, and the steps between.

    The gates of a couple lie in the same place as those of the one tile would, but first those of one, then the
    other's: so each are one matrix.
    """
    count = -(-rows // most)
    for n in range(count):
        start, stop = n * rows // count, (n + 1) * rows // count
        if in_couples and stop - start > 1:
            middle = (start + stop + 1) // 2
            yield (
                Tile(start, stop, rows, 2, slice(start, middle)),
                Tile(start + 1, stop, rows, 2, slice(middle, stop)),
            )
        else:
            yield (Tile(start, stop, rows, 1, slice(start, stop)),)
