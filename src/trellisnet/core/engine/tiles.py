"""How the steps of each layer are cut into tiles, which are computed one after the other.

All row numbers a walk needs are computed here, once per form of call, so that the walks only index.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trellisnet.core.call import Call, Injections
from trellisnet.core.engine.pairs import paired_layers
from trellisnet.core.plan import Layer, Rows

# A CPU computes a layer in tiles of about n gates: the results of one operation are still in cache for the next, and
# the scratch memory is small. But matrix products need a minimum of rows.
TILE = 1 << 21
TILE_ROWS = 1024


class Part(NamedTuple):
    """Steps of a tile that are one matrix: consecutive, or every second one. Where they lie in what a layer uses."""

    gates: slice  # among the gates of the tile
    new: slice  # rows of the level that the layer writes
    taps: tuple[Rows, ...]  # rows of the level that it reads, the oldest tap first
    memory: Rows  # rows of the memories that it reads: of the same level, with sweeps of the level that it writes
    injected: slice  # rows of the layer's injection


class Tile(NamedTuple):
    """Consecutive steps of a layer. One part, or two whose products are computed together (see `pairs.py`)."""

    gates: slice  # among the gates of the layer
    new: slice  # rows of the level that the layer writes
    parts: tuple[Part, ...]
    reads: slice  # if there are two parts: the rows of the level below that they read, one more than steps


class Tiling:
    """The tiles of every layer of a call."""

    def __init__(self, call: Call) -> None:
        injections = call.derive(Injections)
        self.rows = most_rows(call)
        self.paired = paired_layers(call)
        self.layers: list[list[Tile]] = []
        for i, layer in enumerate(call.plan.layers):
            number = injections.of_layer[i]
            skipped = 0 if number is None else injections.lengths[number] - layer.rows
            tiles = cut(layer.rows, self.rows, self.paired[i])
            self.layers.append([_place(tile, call.plan.spans[i + 1], skipped, layer) for tile in tiles])


def most_rows(call: Call) -> int:
    """The most steps of a tile."""
    most = max(layer.rows for layer in call.plan.layers)
    if call.device.type != "cpu":
        return most
    rows = max(TILE_ROWS, TILE // sum(call.gate_widths))
    return min(most, max(1, rows // call.batch))


def cut(rows: int, most: int, paired: bool) -> Iterator[list[slice]]:
    """Cut the steps of a layer into tiles of at most n, each one slice or, in pairs, two: every second step."""
    count = -(-rows // most)
    for n in range(count):
        start, stop = n * rows // count, (n + 1) * rows // count
        if paired and stop - start > 1:
            yield [slice(start, stop, 2), slice(start + 1, stop, 2)]
        else:
            yield [slice(start, stop)]


def _place(slices: list[slice], known: int, skipped: int, layer: Layer) -> Tile:
    """Find the rows of a tile. `known` rows of the new level and `skipped` rows of the injection come first."""
    start, stop, first, taps = slices[0].start, slices[0].stop, 0, layer.taps
    parts = []
    for steps in slices:
        count = len(range(steps.start, steps.stop, steps.step or 1))
        parts.append(
            Part(
                slice(first, first + count),  # the gates of a part are consecutive: one matrix
                _shifted(steps, known),
                tuple(_part(rows, steps) for rows in taps),
                _part(layer.memory, steps),
                _shifted(steps, skipped),
            )
        )
        first += count
    older = taps[0].start if isinstance(taps[0], slice) else 0
    return Tile(
        slice(start, stop), slice(known + start, known + stop), tuple(parts), slice(older + start, older + stop + 1)
    )


def _shifted(steps: slice, by: int) -> slice:
    return slice(steps.start + by, steps.stop + by, steps.step)


def _part(rows: Rows, steps: slice) -> Rows:
    return _shifted(steps, rows.start) if isinstance(rows, slice) else rows[steps]
