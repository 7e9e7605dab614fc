"""One call of a trellis, as data: what is to be computed (`Pass`) and from what (`Inputs`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from torch import Tensor

from trellisnet.core.cells import Cell
from trellisnet.core.inject import Recipe
from trellisnet.core.kernel import Block
from trellisnet.core.plan import Plan, Rows


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
    recompute: bool

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

    def context(self, level: int) -> slice:
        """Where the context of a level lies among those of all levels."""
        spans = self.plan.spans
        start = sum(spans[self.first_level : level])
        return slice(start, start + spans[level])


@dataclass(frozen=True, eq=False)
class Inputs:
    """The tensors of one call.

    A source is what is added to the hidden products of a layer: all of it (rows, B, G*H), a bias (G*H), or, if there
    is an `input_weight`, a few channels (rows, B, K) that are still to be multiplied with it.
    """

    mask: Tensor | None  # (B, H)
    context_h: Tensor | None  # (context rows of all levels, B, H); None: zeros
    context_c: Tensor | None
    input_weight: Tensor | None  # (K, G*H)
    weights: list[Tensor]  # (channels of all terms, G*H), one a block
    sources: list[Tensor]

    def flat(self) -> tuple[Tensor | None, ...]:
        """As one tuple, for autograd."""
        return (self.mask, self.context_h, self.context_c, self.input_weight, *self.weights, *self.sources)

    @staticmethod
    def of(flat: tuple[Tensor | None, ...], blocks: int) -> Inputs:
        """The inverse of `flat`."""
        mask, context_h, context_c, input_weight, *rest = flat
        return Inputs(mask, context_h, context_c, input_weight, rest[:blocks], rest[blocks:])  # type: ignore[arg-type]

    @property
    def batch(self) -> int:
        """The number of sequences: the input always enters the first layer, so there is a source that tells."""
        return next(source.shape[1] for source in self.sources if source.dim() == 3)


Outputs = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]  # y, aux, state h, state c
