"""The independently recurrent network (Li, Li, Cook, Zhu, Gao, CVPR 2018).

h_t = relu(W x_t + b + u h_{t-1})        |u| <= 2^(1/T)

u is one weight per channel: a channel sees its own past only, and the layers mix channels. The bound keeps values
within a factor of 2 over T steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from trellisnet.baselines.base import beyond
from trellisnet.baselines.steps import (
    HiddenDropoutOptions,
    RecurrentBody,
    RecurrentLayer,
    States,
    Step,
    masked,
    sequence_mask,
)
from trellisnet.core.checks import boolean, positive_int


@dataclass(eq=False, repr=False)
class IndRnnOptions(HiddenDropoutOptions):
    """The options of an independently recurrent network.

    Args:
        longest: number T of steps in the bound 2^(1/T) of the recurrent weights; default no bound.
        batch_norm: batch normalisation after each layer, over all steps and sequences of a batch.
    """

    longest: int | None = None
    batch_norm: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.longest = None if self.longest is None else positive_int("longest", self.longest)
        self.batch_norm = boolean("batch_norm", self.batch_norm)


class IndRnnLayer(RecurrentLayer):
    """A layer of an independently recurrent network."""

    def __init__(self, input_size: int, options: IndRnnOptions, where: dict[str, Any]) -> None:
        super().__init__()
        self.hidden_dropout = options.hidden_dropout
        self.bound = None if options.longest is None else 2 ** (1 / options.longest)
        self.input = nn.Linear(input_size, options.hidden_size, **where)
        nn.init.zeros_(self.input.bias)
        self.u = nn.Parameter(torch.rand(options.hidden_size, **where))
        self.norm = ChannelNorm(options.hidden_size, where) if options.batch_norm else None

    def start(self, x: Tensor) -> States:
        return (x.new_zeros(x.shape[1], len(self.u)),)

    def begin(self, x: Tensor) -> tuple[Tensor, Step]:
        u = self.u if self.bound is None else bounded(self.u, self.bound)
        u = masked(u, sequence_mask(x, len(u), self.hidden_dropout if self.training else 0.0))

        def step(pre: Tensor, states: States) -> tuple[Tensor, States]:
            h = (pre + u * states[0]).relu()
            return h, (h,)

        return self.input(x), step

    def end(self, y: Tensor, lengths: Sequence[int] | Tensor | None) -> Tensor:
        return y if self.norm is None else self.norm(y, lengths)


class IndRnnBody(RecurrentBody, IndRnnOptions):
    """An independently recurrent network as a body. Its state is the hidden state (layers, B, H)."""

    def build(self, where: dict[str, Any]) -> None:
        self.stack(lambda size: IndRnnLayer(size, self, where))
        last = cast("IndRnnLayer", self.layers[-1])
        nn.init.ones_(last.u)  # it begins by adding up what it sees


class ChannelNorm(nn.Module):
    """Batch normalisation of (T, B, H) over steps and sequences, padding excluded."""

    mean: Tensor
    variance: Tensor

    def __init__(self, size: int, where: dict[str, Any]) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size, **where))
        self.bias = nn.Parameter(torch.zeros(size, **where))
        self.register_buffer("mean", torch.zeros(size, **where))
        self.register_buffer("variance", torch.ones(size, **where))

    def forward(self, y: Tensor, lengths: Sequence[int] | Tensor | None) -> Tensor:
        """Normalise by the statistics of the batch in training mode, and by their running means otherwise."""
        inside = None if lengths is None else ~beyond(lengths, y).squeeze(-1)  # (T, B)
        rows = y.flatten(0, 1) if inside is None else y[inside]
        rows = F.batch_norm(rows, self.mean, self.variance, self.gain, self.bias, self.training)
        return rows.view_as(y) if inside is None else torch.zeros_like(y).masked_scatter(inside.unsqueeze(-1), rows)


class _Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, bound: float) -> Tensor:
        ctx.save_for_backward(u)
        ctx.bound = bound
        return u.clamp(-bound, bound)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (u,) = ctx.saved_tensors
        outward = ((u >= ctx.bound) & (grad < 0)) | ((u <= -ctx.bound) & (grad > 0))
        return grad.masked_fill(outward, 0), None


def bounded(u: Tensor, bound: float) -> Tensor:
    """Clamp to [-bound, bound]. A weight at the bound has only the gradient that leads back inside."""
    result: Tensor = _Bounded.apply(u, bound)  # type: ignore[no-untyped-call]
    return result
