"""Causal convolutions in time-major layout, with the steps before a call as their state, and bodies of them.

y_t = b + sum_j W_j x_{t - (k-1-j) d}    with k taps, the oldest first, at distances of d steps
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from trellisnet.baselines.base import Baseline, BaselineOptions, last_steps, without_padding
from trellisnet.core.checks import positive_int
from trellisnet.core.pickling import PicklesWeightNorm

Net = TypeVar("Net", bound=nn.Module)


def causal_convolution(
    input_size: int,
    output_size: int,
    kernel_size: int = 1,
    dilation: int = 1,
    weight_norm: bool = False,
    **where: Any,
) -> CausalConvolution:
    """Draw a convolution.

    Args:
        input_size: channels of its input.
        output_size: channels of its output.
        kernel_size: number of taps.
        dilation: steps between taps.
        weight_norm: learn direction and length of each output channel's weights separately.
        where: `device` and `dtype`.
    """
    bound = 2 / math.sqrt(kernel_size * input_size)  # twice that of nn.Conv1d trains faster, as in a trellis
    weight = torch.empty(kernel_size, input_size, output_size, **where).uniform_(-bound, bound)
    drawn = CausalConvolution(weight, torch.zeros(output_size, **where), dilation)
    if weight_norm:
        parametrizations.weight_norm(drawn, "weight", dim=2)
    return drawn


class CausalConvolution(PicklesWeightNorm):
    """A convolution with a weight (k, C, O) and a bias (O) over the present step and the `reach` steps before it."""

    def __init__(self, weight: Tensor, bias: Tensor, dilation: int) -> None:
        super().__init__()
        self.kernel_size, self.dilation = len(weight), dilation
        self.reach = (len(weight) - 1) * dilation
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)

    def forward(
        self, x: Tensor, context: Tensor | None = None, lengths: Sequence[int] | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs (T, B, O) for x (T, B, C), and the context of the next call.

        A context (reach, B, C) is the steps before a call; None: zeros, the start of a sequence.
        """
        if context is None:
            context = x.new_zeros(self.reach, *x.shape[1:])
        rows = torch.cat([context, x])
        return self.convolve(rows, self.dilation), last_steps(rows, self.reach, lengths)

    def strided(self, x: Tensor, context: Tensor | None, offset: int) -> Tensor:
        """The outputs at every d-th step, d the dilation, for x (n, B, C) at these steps.

        `offset` < d is the index of the first of them; the context has all steps before a call, as in `forward`.
        """
        skipped = slice(offset, None, self.dilation)
        before = x.new_zeros(self.kernel_size - 1, *x.shape[1:]) if context is None else context[skipped]
        return self.convolve(torch.cat([before, x]), 1)

    def convolve(self, rows: Tensor, dilation: int) -> Tensor:
        """The outputs (T, B, O) for T steps behind a context of (k-1) * dilation steps."""
        steps = len(rows) - (self.kernel_size - 1) * dilation
        y: Tensor = self.bias
        for j, tap in enumerate(self.weight):  # a view of the rows times a matrix: faster than nn.Conv1d in this layout
            y = torch.addmm(y, rows[j * dilation : j * dilation + steps].flatten(0, 1), tap)
        return y.view(steps, rows.shape[1], -1)


def needed_steps(
    x: Tensor, state: Any, receptive_field: int, tail: int, lengths: Sequence[int] | Tensor | None
) -> tuple[Tensor, Any]:
    """The last steps of x, and the state before them, that determine the last n outputs.

    Raises:
        ValueError: a sequence is shorter than `tail`.
    """
    shortest = len(x) if lengths is None else int(min(lengths))
    if positive_int("tail", tail) > shortest:
        raise ValueError(f"tail must be at most {shortest} (the shortest sequence), got {tail}")
    count = receptive_field + tail - 1
    return (x[-count:], None) if lengths is None and len(x) >= count else (x, state)


def last_outputs(y: Tensor, tail: int, lengths: Sequence[int] | Tensor | None) -> Tensor:
    """The last n steps of y (T, B, C) at each sequence's own end."""
    return last_steps(y, tail, None if lengths is None else [int(end) - tail for end in lengths])


class ConvolutionBody(Baseline, BaselineOptions):
    """A stack of blocks of causal convolutions. A subclass makes the `blocks`.

    A block maps x (T, B, C), the contexts of its convolutions, and the lengths, to outputs and the next contexts. The
    body's state is the contexts of all convolutions.
    """

    input_scale = 6.0  # as for a trellis
    output_size: int  # never None after the checks of `BaselineOptions`
    receptive_field: int
    blocks: nn.ModuleList
    convolutions = 1  # with a context, per block

    def forward(
        self,
        x: Tensor,
        state: Any = None,
        *,
        lengths: Sequence[int] | Tensor | None = None,
        tail: int | None = None,
    ) -> tuple[Tensor, Any]:
        """Run x (T, B, C) from the contexts of an earlier call; return outputs (T, B, O) and the new contexts.

        With `lengths`, the contexts are those at each sequence's own end, and outputs beyond it are zero. With `tail`,
        the outputs are the last n steps, computed from the steps that they depend on, and no contexts are returned.
        """
        x = without_padding(x, lengths)
        if tail is not None:
            x, state = needed_steps(x, state, self.receptive_field, tail, lengths)
        count = self.convolutions
        contexts = [None] * (count * self.num_layers) if state is None else state
        split = [contexts[i : i + count] for i in range(0, len(contexts), count)]
        if tail == 1 and lengths is None:
            return self.project(self.last_step(x, split)), None
        after: list[Tensor] = []
        for block, own in zip(self.blocks, split, strict=True):
            x, new = block(x, own, lengths)
            after += new
        if tail is None:
            return self.project(x, lengths), tuple(after)
        return self.project(last_outputs(x, tail, lengths)), None

    def last_step(self, x: Tensor, contexts: Sequence[Sequence[Tensor | None]]) -> Tensor:
        """The outputs (1, B, H) of the blocks at the last step of x."""
        for block, own in zip(self.blocks, contexts, strict=True):
            x = block(x, own, None)[0]
        return x[-1:]

    def for_inference(self) -> Self:
        """An equal body whose weights are normalised once instead of in every call."""
        return without_weight_norm(self)


def without_weight_norm(net: Net) -> Net:
    """A copy of a net with the normalised weights as plain constants, for many calls on the same weights."""
    plain = copy.deepcopy(net)
    for name, module in list(plain.named_modules()):
        if isinstance(module, CausalConvolution):
            plain.set_submodule(name, CausalConvolution(module.weight.detach(), module.bias, module.dilation))
    return plain.requires_grad_(False)
