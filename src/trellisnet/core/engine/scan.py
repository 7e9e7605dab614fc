"""The memory of a sweep: c_t = a_t c_{t-d} + b_t along time, and its gradient. One operation per d steps.

A level of memories (rows, B, H) begins with a context of at least d rows. Shapes: n steps, B sequences, H channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest

import torch
from torch import Tensor

from trellisnet.core.engine.tiles import Tile


def scan_(memory: Tensor, factors: Sequence[Tensor], tile: Tile, dilation: int) -> None:
    """Turn the offsets b in the rows of a tile into memories c, in place. `factors` has a (n, B, H) of each part."""
    for factor, before, now in _steps(memory, factors, tile, dilation):
        now.addcmul_(factor, before)


def scan_backward_(grad: Tensor, factors: Sequence[Tensor], tile: Tile, dilation: int) -> None:
    """Turn the gradients of memories c into those of the offsets b, in place; the rows before the tile are added to."""
    for factor, before, now in reversed(_steps(grad, factors, tile, dilation)):
        before.addcmul_(factor, now)


def _steps(level: Tensor, factors: Sequence[Tensor], tile: Tile, dilation: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Factor, memory before and memory of each group of d steps, which do not depend on each other."""
    rows = level[tile.new.start - dilation : tile.new.stop]
    if len(factors) > 1:  # every second step each, with dilation 1
        taken = [factor.unbind() for factor in factors]
        in_order = [factor for factor in chain.from_iterable(zip_longest(*taken)) if factor is not None]
        steps = rows.unbind()
    else:
        in_order, steps = list(factors[0].split(dilation)), rows.split(dilation)
    return [
        (factor, before[: len(factor)], now) if dilation > 1 else (factor, before, now)
        for factor, before, now in zip(in_order, steps[:-1], steps[1:], strict=True)
    ]


def scan(factor: Tensor, offset: Tensor, context: Tensor, dilation: int) -> Tensor:
    """The same with ordinary operations: memories (n, B, H), from a, b and the d memories before them."""
    before, memories = context, []
    for a, b in zip(factor.split(dilation), offset.split(dilation), strict=True):
        before = a * before[: len(a)] + b
        memories.append(before)
    return torch.cat(memories)
