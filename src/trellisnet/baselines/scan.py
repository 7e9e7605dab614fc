"""Element-wise linear recurrences, h_t = a_t h_{t-1} + b_t, and what the bodies that stack them share.

A loop with one operation per step, while the matrix products around it are parallel in time. On a CPU the loop is
faster than a parallel scan, which reads all steps log2(T) times, and than a convolution by the Fourier transform.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from trellisnet.baselines.base import Baseline, BaselineOptions, state_at_ends, without_padding


def scan(keep: Tensor, add: Tensor, first: Tensor | None = None) -> Tensor:
    """The states (T, B, H) of h_t = keep_t h_{t-1} + add_t, real or complex.

    Args:
        keep: (T, B, H), or a shape that broadcasts to it.
        add: (T, B, H).
        first: the state (B, H) before the first step; None: zeros.
    """
    if first is None:
        first = torch.zeros_like(add[0])
    states: Tensor = _Scan.apply(keep, add, first)  # type: ignore[no-untyped-call]
    return states


class _Scan(torch.autograd.Function):
    """One operation per step in both directions; autograd alone would record every step."""

    @staticmethod
    def forward(ctx: Any, keep: Tensor, add: Tensor, first: Tensor) -> Tensor:
        states, before = torch.empty_like(add), first
        for keep_t, add_t, state in zip(keep.expand_as(add).unbind(), add.unbind(), states.unbind(), strict=True):
            before = torch.addcmul(add_t, keep_t, before, out=state)
        ctx.save_for_backward(keep, first, states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        keep, first, states = ctx.saved_tensors
        keep_steps = keep.conj().resolve_conj().expand_as(states).unbind()
        totals = torch.empty_like(states)  # the gradients of the states, through all later steps
        later = totals[-1].copy_(gradient[-1])
        rows = list(zip(keep_steps[1:], gradient.unbind()[:-1], totals.unbind()[:-1], strict=True))
        for keep_t, own, total in reversed(rows):
            later = torch.addcmul(own, keep_t, later, out=total)
        before = torch.cat([first[None], states[:-1]])
        return (totals * before.conj()).sum_to_size(keep.shape), totals, keep_steps[0] * totals[0]


class ScanBody(Baseline, BaselineOptions):
    """A stack of blocks with connections around them, and layer norm at its end. A subclass makes it with `stack`.

    A block maps x (T, B, H) and a state (B, ...) to outputs and the states after every step. The body's state is
    (layers, B, ...).
    """

    input_scale = 6.0  # as for a trellis
    output_size: int  # never None after the checks of `BaselineOptions`

    def stack(self, make: Callable[[], nn.Module], where: dict[str, Any]) -> None:
        """Make the blocks, and a linear map before them where the input has another width."""
        same = self.input_size == self.hidden_size
        self.up = None if same else nn.Linear(self.input_size, self.hidden_size, **where)
        self.blocks = nn.ModuleList(make() for _ in range(self.num_layers))
        self.norm = nn.LayerNorm(self.hidden_size, **where)

    def forward(
        self, x: Tensor, state: Tensor | None = None, *, lengths: Sequence[int] | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Run x (T, B, C) from a state; return outputs (T, B, O) and the new state.

        With `lengths`, the state is the one at each sequence's own end, and outputs beyond it are zero.
        """
        x = without_padding(x, lengths)
        x = x if self.up is None else self.up(x)
        last = []
        for i, block in enumerate(self.blocks):
            x, states = block(x, None if state is None else state[i])
            last.append(state_at_ends(states, lengths))
        return self.project(self.norm(x), lengths), torch.stack(last)
