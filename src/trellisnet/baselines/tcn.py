"""The generic temporal convolutional network (Bai, Kolter, Koltun, 2018): residual blocks of dilated convolutions.

Block i, with causal convolutions of k taps and dilation 2^i, weights normalised per channel (* is a convolution):
u = dropout(relu(W * x + b))    v = dropout(relu(V * u + c))    y = relu(v + x), or relu(v + S x) where widths differ

S. Bai, J. Z. Kolter, V. Koltun: An Empirical Evaluation of Generic Convolutional and Recurrent Networks for Sequence
Modeling. arXiv:1803.01271.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.baselines.base import Baseline, BaselineOptions
from trellisnet.baselines.convolution import causal_convolution, last_outputs, needed_steps, without_weight_norm
from trellisnet.core.checks import positive_int, probability


@dataclass(eq=False, repr=False)
class TcnOptions(BaselineOptions):
    """The options of a temporal convolutional network.

    Args:
        num_layers: number of blocks; the dilation doubles from block to block.
        kernel_size: taps of every convolution.
        dropout: after every convolution.
    """

    num_layers: int = 8
    kernel_size: int = 3
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kernel_size = positive_int("kernel_size", self.kernel_size)
        self.dropout = probability("dropout", self.dropout)


class TcnBlock(nn.Module):
    """Two convolutions and the connection around them."""

    def __init__(self, input_size: int, options: TcnOptions, dilation: int, where: dict[str, Any]) -> None:
        super().__init__()
        width = options.hidden_size
        shape = (width, options.kernel_size, dilation, True)
        self.first = causal_convolution(input_size, *shape, **where)
        self.second = causal_convolution(width, *shape, **where)
        self.skip = None if input_size == width else nn.Linear(input_size, width, **where)
        self.dropout = options.dropout

    def forward(
        self, x: Tensor, contexts: Sequence[Tensor | None], lengths: Sequence[int] | Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the outputs (T, B, H) for x (T, B, C), and the next contexts of both convolutions."""
        pre, first = self.first(x, contexts[0], lengths)
        inner = self._drop(pre.relu())
        pre, second = self.second(inner, contexts[1], lengths)
        return self._join(x, pre), [first, second]

    def every_second(self, x: Tensor, contexts: Sequence[Tensor | None], offset: int) -> Tensor:
        """The outputs at every second step of x, backwards from the last.

        x (n, B, C) has every d-th step, d the dilation, so that the taps are neighbours. The first of them has the
        index `offset` < d.
        """
        inner = self._drop(self.first.strided(x, contexts[0], offset).relu())
        newest = (len(x) - 1) % 2
        return self._join(x, self.second.strided(inner, contexts[1], offset))[newest::2]

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)

    def _join(self, x: Tensor, pre: Tensor) -> Tensor:
        return (self._drop(pre.relu()) + (x if self.skip is None else self.skip(x))).relu()


class TcnBody(Baseline, TcnOptions):
    """A temporal convolutional network as a body. Its state is the left contexts of all convolutions.

    >>> import torch
    >>> body = TcnBody(3, hidden_size=8, num_layers=4)
    >>> y, contexts = body(torch.randn(10, 2, 3))
    >>> tuple(y.shape), body.receptive_field, len(contexts)
    ((10, 2, 8), 61, 8)
    """

    input_scale = 6.0  # as for a trellis
    output_size: int

    def build(self, where: dict[str, Any]) -> None:
        widths = [self.input_size] + [self.hidden_size] * (self.num_layers - 1)
        self.blocks = nn.ModuleList(TcnBlock(width, self, 2**i, where) for i, width in enumerate(widths))
        self.receptive_field: int = 1 + 2 * (self.kernel_size - 1) * (2**self.num_layers - 1)

    def forward(
        self,
        x: Tensor,
        state: Any = None,
        *,
        lengths: Sequence[int] | Tensor | None = None,
        tail: int | None = None,
    ) -> tuple[Tensor, Any]:
        """Run x (T, B, C) from the contexts of an earlier call; return outputs (T, B, O) and the new contexts.

        With `lengths`, the contexts are those at each sequence's own end, and outputs beyond it are zero. With
        `tail`, the outputs are the last n steps, and no contexts are returned. `tail=1` without `lengths` computes only
        what the last step depends on: half as many steps in each block as in the one below.
        """
        if tail is not None:
            x, state = needed_steps(x, state, self.receptive_field, tail, lengths)
        contexts = [None] * (2 * self.num_layers) if state is None else state
        after: list[Tensor] = []
        halving, steps = tail == 1 and lengths is None, len(x)
        block: Any
        for i, block in enumerate(self.blocks):
            own = contexts[2 * i : 2 * i + 2]
            if halving:
                x = block.every_second(x, own, (steps - 1) % 2**i)
            else:
                x, new = block(x, own, lengths)
                after += new
        if tail is None:
            return self.project(x, lengths), tuple(after)
        return self.project(x[-1:] if halving else last_outputs(x, tail, lengths)), None

    def for_inference(self) -> TcnBody:
        """An equal body whose weights are normalised once instead of in every call."""
        return without_weight_norm(self)
