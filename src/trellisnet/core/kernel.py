"""The tied weights of a trellis: one dense kernel, or the mixed-group kernel of theorem 1.

A kernel is a list of blocks. A block computes the gates of some hidden channels as a sum of terms, each a product
of one tap's channels with some rows of the block's matrix. A dense kernel is a single block with one term per tap; a
mixed-group kernel has one block per group. The input enters the first block. Weight norm and DropConnect happen in
`materialise`, once per pass. Shapes: G gates, H hidden channels, C input channels, K taps (the oldest first).

Weights are stored as they multiply, (K, channels, G*H): the taps of a kernel are then one matrix in memory, and
products are faster than with the transpose, those of a single row nearly twice.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize

from trellisnet.core.cells import Cell
from trellisnet.core.options import TrellisOptions
from trellisnet.core.pickling import PicklesWeightNorm


@dataclass(frozen=True)
class Term:
    """One product: some channels of a tap (0 is the oldest) of the level below, and some rows of the block's matrix."""

    tap: int
    channels: slice
    rows: slice


@dataclass(frozen=True)
class Block:
    """Some hidden channels, and the terms their gates are the sum of."""

    channels: slice
    terms: tuple[Term, ...]

    @staticmethod
    def of(channels: slice, reads: Sequence[tuple[int, slice]]) -> Block:
        """Make a block with one term for each pair (tap, channels); the rows of the terms are consecutive."""
        starts = accumulate((read.stop - read.start for _, read in reads), initial=0)
        terms = (Term(*read, slice(*rows)) for read, rows in zip(reads, pairwise(starts), strict=True))
        return Block(channels, tuple(terms))

    @property
    def width(self) -> int:
        """The number of hidden channels."""
        return int(self.channels.stop - self.channels.start)


class Weights(NamedTuple):
    """A kernel as the engine uses it, after weight norm and dropout."""

    hidden: list[Tensor]  # per block (channels of all terms, G*H)
    input: Tensor  # (input taps * C, G*H of the first block)
    biases: list[Tensor | None]  # per block (G*H)

    def to(self, dtype: torch.dtype) -> Weights:
        """Convert to another dtype."""
        biases = [None if bias is None else bias.to(dtype) for bias in self.biases]
        return Weights([matrix.to(dtype) for matrix in self.hidden], self.input.to(dtype), biases)


def from_first_layout(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Convert tensors of version 0.1.0, whose kernels under `prefix` are (K, G*H, channels), to today's layout."""
    return {
        name: tensor.transpose(1, 2).contiguous() if name.startswith(prefix) and tensor.dim() == 3 else tensor
        for name, tensor in tensors.items()
    }


class Drop(NamedTuple):
    """DropConnect as one pass applies it: with the paper, to the older taps only."""

    probability: float
    all_taps: bool = False

    def apply(self, weight: Tensor, older_taps: int) -> Tensor:
        """Drop entries of a weight (K, channels, G*H) whose first taps are the older ones."""
        if self.all_taps:
            return F.dropout(weight, self.probability)
        older, newest = weight[:older_taps], weight[older_taps:]
        return torch.cat([F.dropout(older, self.probability), newest])


class Kernel(PicklesWeightNorm, ABC):
    """What dense and mixed-group kernels share: initialisation, weight norm, DropConnect."""

    _version = 2  # torch writes it beside a state_dict
    blocks: tuple[Block, ...]
    input_taps: int  # the input enters through the newest n taps
    weight_names: tuple[str, ...]
    bias_names: tuple[str, ...]

    def __init__(self, cell: Cell, options: TrellisOptions) -> None:
        super().__init__()
        self.gates, self.taps = cell.gates, options.kernel_size
        self.weight_scale = cell.weight_scale
        self.gate_biases = cell.gate_biases or (0.0,) * cell.gates

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        if local_metadata.get("version") == 1:
            state_dict.update(from_first_layout(state_dict, prefix))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    @property
    def weight_norm(self) -> bool:
        """Whether weights are computed from directions and lengths."""
        return parametrize.is_parametrized(self)

    def _normalise(self) -> None:
        for name in self.weight_names:
            if getattr(self, name).numel():  # without hidden taps there is nothing to normalise
                parametrizations.weight_norm(self, name, dim=2)

    def reset_parameters(self, init: str, hidden_size: int) -> None:
        """Draw all parameters: "uniform" (the default) or "paper", the authors' N(0, 0.01) for everything."""
        bound = self.weight_scale / math.sqrt(hidden_size)
        with torch.no_grad():
            for name in self.weight_names:
                fresh = torch.empty_like(getattr(self, name))
                fresh = fresh.normal_(0, 0.01) if init == "paper" else fresh.uniform_(-bound, bound)
                self.set_weight(name, fresh)
            for bias in self.bias_parameters():
                if init == "paper":
                    bias.normal_(0, 0.01)
                else:
                    start = torch.tensor(self.gate_biases, dtype=bias.dtype, device=bias.device)
                    bias.copy_(start.repeat_interleave(len(bias) // self.gates))

    def set_weight(self, name: str, value: Tensor) -> None:
        """Set a weight to a value, also under weight norm."""
        with torch.no_grad():
            if parametrize.is_parametrized(self, name):
                setattr(self, name, value)
            else:
                getattr(self, name).copy_(value)

    def bias_parameters(self) -> list[nn.Parameter]:
        """The biases, one per block; none for a kernel without."""
        return [getattr(self, name) for name in self.bias_names]

    def _weight(self, name: str, older_taps: int, drop: Drop | None) -> Tensor:
        """The taps of a weight as one matrix, under DropConnect."""
        return self._taps(name, older_taps, drop).flatten(0, 1)

    def _taps(self, name: str, older_taps: int, drop: Drop | None) -> Tensor:
        if drop is None or not drop.probability:
            weight: Tensor = getattr(self, name)
            return weight
        if not parametrize.is_parametrized(self, name):
            return drop.apply(getattr(self, name), older_taps)
        # with weight norm, the direction is dropped before it is normalised, as the authors do
        norm: Any = self.get_submodule(f"parametrizations.{name}")
        direction = drop.apply(norm.original1, older_taps)
        empty = direction.eq(0).all(dim=1, keepdim=True).all(dim=0, keepdim=True)
        weight = norm[0](norm.original0, torch.where(empty, 1, direction))
        return torch.where(empty, 0, weight)  # a gate that lost all its weights has no direction

    @abstractmethod
    def _matrices(self, drop: Drop | None) -> tuple[list[Tensor], Tensor]:
        """The matrices of the blocks, and that of the input."""

    def materialise(self, dtype: torch.dtype, drop: Drop | None = None) -> Weights:
        """The weights of one pass: normalised, dropped and cast once, whatever the number of layers."""
        hidden, input_weight = self._matrices(drop)
        weights = Weights(hidden, input_weight, list(self.bias_parameters()) or [None] * len(self.blocks))
        return weights if dtype == input_weight.dtype else weights.to(dtype)

    def dense(self, weights: Weights) -> tuple[Tensor, Tensor, Tensor | None]:
        """Write weights of this kernel out as dense ones: (K, C, G*H), (K, H, G*H) and a bias (G*H)."""
        width = self.blocks[-1].channels.stop
        hidden = weights.input.new_zeros(self.taps, width, self.gates, width)
        inputs = weights.input.new_zeros(self.taps, len(weights.input) // self.input_taps, self.gates, width)
        bias = weights.input.new_zeros(self.gates, width)
        taps = weights.input.unflatten(0, (self.input_taps, -1)).unflatten(2, (self.gates, -1))
        inputs[self.taps - self.input_taps :, ..., self.blocks[0].channels] = taps
        for block, matrix, block_bias in zip(self.blocks, weights.hidden, weights.biases, strict=True):
            for term in block.terms:
                hidden[term.tap, term.channels, :, block.channels] = matrix[term.rows].unflatten(1, (self.gates, -1))
            if block_bias is not None:
                bias[:, block.channels] = block_bias.unflatten(0, (self.gates, -1))
        return inputs.flatten(2), hidden.flatten(2), bias.flatten() if self.bias_names else None

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        name = self.weight_names[0]
        if (weight := self._parameters.get(name)) is not None:
            return weight.dtype
        return next(self.get_submodule(f"parametrizations.{name}").parameters()).dtype

    def extra_repr(self) -> str:
        return f"groups={[block.width for block in self.blocks]}"


class DenseKernel(Kernel):
    """Every channel of every tap reaches every channel: the paper's experiments."""

    weight_names = ("weight_input", "weight_hidden")

    def __init__(self, input_size: int, cell: Cell, options: TrellisOptions, **where: Any) -> None:
        super().__init__(cell, options)
        hidden_size, kernel_size = options.hidden_size, options.kernel_size
        gates = cell.gates * hidden_size
        everything = slice(0, hidden_size)
        self.hidden_taps = kernel_size if options.hidden_taps is None else options.hidden_taps
        self.blocks = (Block.of(everything, [(j, everything) for j in range(self.hidden_taps)]),)
        self.input_taps = kernel_size
        self.weight_input = nn.Parameter(torch.zeros(kernel_size, input_size, gates, **where))
        self.weight_hidden = nn.Parameter(torch.zeros(self.hidden_taps, hidden_size, gates, **where))
        self.bias_names = ("bias",) if options.bias else ()
        if options.bias:
            self.bias = nn.Parameter(torch.zeros(gates, **where))
        if options.weight_norm:
            self._normalise()

    def _matrices(self, drop: Drop | None) -> tuple[list[Tensor], Tensor]:
        older = self.taps - 1
        return [self._weight("weight_hidden", older, drop)], self._weight("weight_input", older, drop)


class MixedGroupKernel(Kernel):
    """The sparse kernel of theorem 1: group l reads its own past, and the present of group l-1 (the input if l = 1)."""

    def __init__(self, input_size: int, cell: Cell, options: TrellisOptions, **where: Any) -> None:
        super().__init__(cell, options)
        groups, kernel_size = options.groups or (), options.kernel_size
        channels = [slice(start, stop) for start, stop in pairwise(accumulate(groups, initial=0))]
        self.input_taps = 1
        blocks, names = [], []
        for i, own in enumerate(channels):
            past = [(j, own) for j in range(kernel_size - 1)]
            below = [(kernel_size - 1, channels[i - 1])] if i else []
            blocks.append(Block.of(own, [*past, *below]))
            gates = cell.gates * groups[i]
            for name, taps, width in (
                (f"weight_below_{i}", 1, groups[i - 1] if i else input_size),
                (f"weight_past_{i}", kernel_size - 1, groups[i]),
            ):
                setattr(self, name, nn.Parameter(torch.zeros(taps, width, gates, **where)))
                names.append(name)
            if options.bias:
                setattr(self, f"bias_{i}", nn.Parameter(torch.zeros(gates, **where)))
        self.blocks, self.weight_names = tuple(blocks), tuple(names)
        self.bias_names = tuple(f"bias_{i}" for i in range(len(groups))) if options.bias else ()
        if options.weight_norm:
            self._normalise()

    def _matrices(self, drop: Drop | None) -> tuple[list[Tensor], Tensor]:
        past, below = (
            [self._weight(f"weight_{part}_{i}", older, drop) for i in range(len(self.blocks))]
            for part, older in (("past", self.taps - 1), ("below", 0))
        )
        return [past[0], *(torch.cat(both) for both in zip(past[1:], below[1:], strict=True))], below[0]
