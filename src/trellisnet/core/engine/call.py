"""One call of a trellis, as data: what is to be computed (`Pass`) and from what (`Inputs`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from trellisnet.core.cells import Cell
from trellisnet.core.kernel import Block
from trellisnet.core.plan import Plan, Rows


class Recipe(NamedTuple):
    """How a source is made: for which block, and from which rows of x for each tap (none: only the bias)."""

    block: int
    taps: tuple[Rows, ...]


@dataclass(frozen=True, eq=False)
class Pass:
    """All about one call that is not a tensor."""

    plan: Plan
    cell: Cell
    blocks: tuple[Block, ...]
    sources: tuple[tuple[int | None, ...], ...]  # [layer][block]: which source is added to the products
    alive: tuple[int | None, ...]  # channels alive in each layer; None: all
    output: slice  # the output channels
    aux: tuple[int, ...]  # levels whose output is wanted too
    ends: tuple[Rows, ...]  # for levels 1 and up, the rows of the state to return; empty: no state
    first_level: int  # the given contexts begin at this level; below it they are zero
    recipes: tuple[Recipe, ...]  # how the sources are made
    input_span: int  # so many inputs before the first step stand before x in the recipes
    narrow: bool  # sources from the input are multiplied in every layer, not once for all layers of a dilation
    recompute: bool
    dtype: torch.dtype  # to compute in
    result_dtype: torch.dtype

    @property
    def width(self) -> int:
        """The number of hidden channels."""
        return int(self.blocks[-1].channels.stop)

    @property
    def gate_widths(self) -> list[int]:
        """The number of pre-activations of each block."""
        return [self.cell.gates * int(block.channels.stop - block.channels.start) for block in self.blocks]

    @cached_property
    def state_starts(self) -> tuple[int, ...]:
        """Where the rows of each level from 1 on begin in the state to return, and where the last of them end."""
        counts = [rows.stop - rows.start if isinstance(rows, slice) else len(rows) for rows in self.ends]
        return tuple(accumulate(counts, initial=0))

    def shared_products(self, layers: Iterable[int]) -> dict[int, tuple[int, int]]:
        """The sources to be multiplied once for these layers, the lowest first; of each the rows and the channels."""
        shapes: dict[int, tuple[int, int]] = {}
        for i in layers if not self.narrow else ():
            for s, width in zip(self.sources[i], self.gate_widths, strict=True):
                if s is not None and self.recipes[s].taps:
                    shapes.setdefault(s, (self.plan.layers[i].rows, width))
        return shapes

    def empty_outputs(self, inputs: Inputs) -> Outputs:
        """Room for what the call returns: y, aux, state h, state c."""
        y = inputs.sources[0].new_empty(self.plan.wanted, inputs.batch, self.output.stop - self.output.start)
        state_h = y.new_empty(self.state_starts[-1], inputs.batch, self.width) if self.ends else None
        state_c = None if state_h is None or not self.cell.has_memory else torch.empty_like(state_h)
        return y, y.new_empty(len(self.aux), *y.shape) if self.aux else None, state_h, state_c

    def context(self, level: int) -> slice:
        """Where the context of a level lies among those of all levels."""
        spans = self.plan.spans
        start = sum(spans[self.first_level : level])
        return slice(start, start + spans[level])


@dataclass(frozen=True, eq=False)
class Inputs:
    """The tensors of one call.

    A source is what is added to the hidden products of a layer: a bias (G*H), or what was gathered from the input
    (rows, B, K), which is still to be multiplied.
    """

    mask: Tensor | None  # (B, H)
    context_h: Tensor | None  # (context rows of all levels, B, H); None: zeros
    context_c: Tensor | None
    input_weight: Tensor  # (K, G*H)
    input_bias: Tensor | None  # (G*H), to be added to the products with it
    weights: list[Tensor]  # (channels of all terms, G*H), one a block
    sources: list[Tensor]

    def flat(self) -> tuple[Tensor | None, ...]:
        """As one tuple, for autograd."""
        rest = (self.mask, self.context_h, self.context_c, self.input_weight, self.input_bias)
        return (*rest, *self.weights, *self.sources)

    @staticmethod
    def of(flat: tuple[Tensor | None, ...], blocks: int) -> Inputs:
        """The inverse of `flat`."""
        mask, context_h, context_c, weight, bias, *rest = flat
        return Inputs(mask, context_h, context_c, weight, bias, rest[:blocks], rest[blocks:])  # type: ignore[arg-type]

    def product(self, source: Tensor, out: Tensor | None = None) -> Tensor:
        """What a source from the input, or some rows of it, contributes: (rows, B, G*H)."""
        out = None if out is None else out.flatten(0, 1)
        product = weighted(source.flatten(0, 1), self.input_weight, self.input_bias, out)
        return product.view(*source.shape[:2], -1)

    @property
    def batch(self) -> int:
        """The number of sequences: the input always enters the first layer, so the first source tells."""
        return self.sources[0].shape[1]


def weighted(matrix: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
    """The product of a matrix with a weight, and the bias."""
    return torch.mm(matrix, weight, out=out) if bias is None else torch.addmm(bias, matrix, weight, out=out)


Outputs = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]  # y, aux, state h, state c
