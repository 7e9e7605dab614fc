"""The tied weights of a trellis: one dense kernel, or the mixed-group kernel of theorem 1.

A kernel is a list of blocks. A block computes the gates of some hidden channels as a sum of terms, each a product
of one tap's channels with one matrix. A dense kernel is a single block with a term a tap; a mixed-group kernel has
a block a group. The engine knows blocks and terms only. Weight norm and DropConnect happen in `materialise`,
once a pass. Shapes: G gates, H hidden, C input channels, K taps (the oldest first).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize

from trellisnet.core.cells import Cell


@dataclass(frozen=True)
class Term:
    """One product: a tap (0 is the oldest) of the level below, restricted to some channels."""

    tap: int
    channels: slice


@dataclass(frozen=True)
class Block:
    """Some hidden channels, the terms their gates are the sum of, and whether the input enters here."""

    channels: slice
    terms: tuple[Term, ...]
    injected: bool


@dataclass(frozen=True, eq=False)
class Weights:
    """A kernel as the engine uses it, after weight norm and dropout."""

    terms: list[Tensor]  # one (G*H, channels) a term, block after block
    input: Tensor  # (input taps, G*H of the injected block, C)
    biases: list[Tensor | None]  # one (G*H) a block

    def to(self, dtype: torch.dtype) -> Weights:
        """The same in another dtype."""
        biases = [None if bias is None else bias.to(dtype) for bias in self.biases]
        return Weights([term.to(dtype) for term in self.terms], self.input.to(dtype), biases)


class Kernel(nn.Module, ABC):
    """What dense and mixed-group kernels share: initialisation, weight norm, DropConnect."""

    blocks: tuple[Block, ...]
    input_taps: int  # through how many of the newest taps the input enters
    weight_names: tuple[str, ...]
    bias_names: tuple[str, ...]

    def __init__(self, cell: Cell, taps: int, weight_dropout: float, drop_all_taps: bool) -> None:
        super().__init__()
        self.gates, self.taps = cell.gates, taps
        self.weight_scale = cell.weight_scale
        self.gate_biases = cell.gate_biases or (0.0,) * cell.gates
        self.weight_dropout = weight_dropout
        self.drop_all_taps = drop_all_taps

    @property
    def weight_norm(self) -> bool:
        """Whether weights are computed from directions and lengths."""
        return parametrize.is_parametrized(self)

    def _normalise(self) -> None:
        for name in self.weight_names:
            parametrizations.weight_norm(self, name, dim=1)

    def reset_parameters(self, init: str, hidden_size: int) -> None:
        """Start anew: "uniform" (the default) or "paper", the authors' N(0, 0.01) for everything."""
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
        """Set a weight to a value, through weight norm where it is on."""
        with torch.no_grad():
            if parametrize.is_parametrized(self, name):
                setattr(self, name, value)
                lengths = self.get_parameter(f"parametrizations.{name}.original0")
                lengths.data = lengths.data.flatten().view(lengths.shape)  # strides as those of its gradient, for DDP
            else:
                getattr(self, name).copy_(value)

    def bias_parameters(self) -> list[nn.Parameter]:
        """The biases, one a block; none for a kernel without."""
        return [getattr(self, name) for name in self.bias_names]

    def _weight(self, name: str, older_taps: int, dropped: bool) -> Tensor:
        """The weight (taps, G*H, channels) under DropConnect, which by default acts on the older taps only."""
        if not (dropped and self.training and self.weight_dropout):
            weight: Tensor = getattr(self, name)
            return weight
        if not parametrize.is_parametrized(self, name):
            return self._drop(getattr(self, name), older_taps)
        # with weight norm, the direction is dropped before it is normalised, as the authors do
        norm: Any = self.get_submodule(f"parametrizations.{name}")
        direction = self._drop(norm.original1, older_taps)
        empty = direction.eq(0).all(dim=2, keepdim=True).all(dim=0, keepdim=True)
        weight = norm[0](norm.original0, torch.where(empty, 1, direction))
        return torch.where(empty, 0, weight)  # a row that lost all its weights has no direction

    def _drop(self, weight: Tensor, older_taps: int) -> Tensor:
        if self.drop_all_taps:
            return F.dropout(weight, self.weight_dropout)
        older, newest = weight[:older_taps], weight[older_taps:]
        return torch.cat([F.dropout(older, self.weight_dropout), newest])

    @abstractmethod
    def _weights(self, dropped: bool) -> tuple[list[Tensor], Tensor]:
        """The weights of all terms, and that of the input."""

    def materialise(self, dtype: torch.dtype, dropped: bool = True) -> Weights:
        """The weights of one pass: normalised, dropped and cast once, whatever the number of layers."""
        terms, input_weight = self._weights(dropped)
        weights = Weights(terms, input_weight, list(self.bias_parameters()) or [None] * len(self.blocks))
        return weights if dtype == input_weight.dtype else weights.to(dtype)

    def dense_weights(self, dropped: bool = True) -> tuple[Tensor, Tensor, Tensor | None]:
        """The kernel written out as dense weights (K, G*H, C), (K, G*H, H) and a bias (G*H)."""
        weights = self.materialise(self.dtype, dropped)
        width = self.blocks[-1].channels.stop
        hidden = weights.input.new_zeros(self.taps, self.gates, width, width)
        inputs = weights.input.new_zeros(self.taps, self.gates, width, weights.input.shape[-1])
        bias = weights.input.new_zeros(self.gates, width)
        matrices = iter(weights.terms)
        for block, block_bias in zip(self.blocks, weights.biases, strict=True):
            for term in block.terms:
                hidden[term.tap, :, block.channels, term.channels] = next(matrices).unflatten(0, (self.gates, -1))
            if block.injected:
                inputs[self.taps - self.input_taps :, :, block.channels] = weights.input.unflatten(1, (self.gates, -1))
            if block_bias is not None:
                bias[:, block.channels] = block_bias.unflatten(0, (self.gates, -1))
        has_bias = weights.biases[0] is not None
        return inputs.flatten(1, 2), hidden.flatten(1, 2), bias.flatten() if has_bias else None

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        name = self.weight_names[0]
        if not parametrize.is_parametrized(self, name):
            weight: Tensor = getattr(self, name)
            return weight.dtype
        return next(self.get_submodule(f"parametrizations.{name}").parameters()).dtype

    def extra_repr(self) -> str:
        drop = f", weight_dropout={self.weight_dropout}" if self.weight_dropout else ""
        return f"groups={[b.channels.stop - b.channels.start for b in self.blocks]}{drop}"


class DenseKernel(Kernel):
    """Every channel of every tap reaches every channel: the paper's experiments."""

    weight_names = ("weight_input", "weight_hidden")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        cell: Cell,
        kernel_size: int = 2,
        bias: bool = True,
        weight_norm: bool = False,
        weight_dropout: float = 0.0,
        drop_all_taps: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(cell, kernel_size, weight_dropout, drop_all_taps)
        rows = cell.gates * hidden_size
        everything = slice(0, hidden_size)
        self.blocks = (Block(everything, tuple(Term(j, everything) for j in range(kernel_size)), True),)
        self.input_taps = kernel_size
        self.weight_input = nn.Parameter(torch.zeros(kernel_size, rows, input_size, device=device, dtype=dtype))
        self.weight_hidden = nn.Parameter(torch.zeros(kernel_size, rows, hidden_size, device=device, dtype=dtype))
        self.bias_names = ("bias",) if bias else ()
        if bias:
            self.bias = nn.Parameter(torch.zeros(rows, device=device, dtype=dtype))
        if weight_norm:
            self._normalise()

    def _weights(self, dropped: bool) -> tuple[list[Tensor], Tensor]:
        older = self.taps - 1
        hidden = self._weight("weight_hidden", older, dropped)
        return list(hidden.unbind()), self._weight("weight_input", older, dropped)


class MixedGroupKernel(Kernel):
    """The sparse kernel of theorem 1: group l reads its own past, and the present of group l-1 (the input if l = 1)."""

    def __init__(
        self,
        input_size: int,
        groups: Sequence[int],
        cell: Cell,
        kernel_size: int = 2,
        bias: bool = True,
        weight_norm: bool = False,
        weight_dropout: float = 0.0,
        drop_all_taps: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(cell, kernel_size, weight_dropout, drop_all_taps)
        channels = [slice(start, stop) for start, stop in pairwise(accumulate(groups, initial=0))]
        self.input_taps = 1
        blocks, names = [], []
        for i, own in enumerate(channels):
            terms = [Term(j, own) for j in range(kernel_size - 1)]
            below = [Term(kernel_size - 1, channels[i - 1])] if i else []
            blocks.append(Block(own, (*terms, *below), injected=i == 0))
            rows = cell.gates * groups[i]
            for name, taps, width in (
                (f"weight_below_{i}", 1, groups[i - 1] if i else input_size),
                (f"weight_past_{i}", kernel_size - 1, groups[i]),
            ):
                setattr(self, name, nn.Parameter(torch.zeros(taps, rows, width, device=device, dtype=dtype)))
                names.append(name)
            if bias:
                setattr(self, f"bias_{i}", nn.Parameter(torch.zeros(rows, device=device, dtype=dtype)))
        self.blocks, self.weight_names = tuple(blocks), tuple(names)
        self.bias_names = tuple(f"bias_{i}" for i in range(len(groups))) if bias else ()
        if weight_norm:
            self._normalise()

    def _weights(self, dropped: bool) -> tuple[list[Tensor], Tensor]:
        terms: list[Tensor] = []
        for i in range(len(self.blocks)):
            terms += self._weight(f"weight_past_{i}", self.taps - 1, dropped).unbind()
            if i:
                terms += self._weight(f"weight_below_{i}", 0, dropped).unbind()
        return terms, self._weight("weight_below_0", 0, dropped)
