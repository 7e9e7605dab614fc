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

from trellisnet.baselines.base import BaselineOptions
from trellisnet.baselines.convolution import ConvolutionBody, causal_convolution
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


class TcnBody(ConvolutionBody, TcnOptions):
    """A temporal convolutional network as a body. Its state is the left contexts of all convolutions.

    >>> import torch
    >>> body = TcnBody(3, hidden_size=8, num_layers=4)
    >>> y, contexts = body(torch.randn(10, 2, 3))
    >>> tuple(y.shape), body.receptive_field, len(contexts)
    ((10, 2, 8), 61, 8)
    """

    convolutions = 2

    def build(self, where: dict[str, Any]) -> None:
        widths = [self.input_size] + [self.hidden_size] * (self.num_layers - 1)
        self.blocks = nn.ModuleList(TcnBlock(width, self, 2**i, where) for i, width in enumerate(widths))
        self.receptive_field = 1 + 2 * (self.kernel_size - 1) * (2**self.num_layers - 1)

    def last_step(self, x: Tensor, contexts: Sequence[Sequence[Tensor | None]]) -> Tensor:
        """Only what the last step depends on: half as many steps in each block as in the one below."""
        steps = len(x)
        block: Any
        for i, (block, own) in enumerate(zip(self.blocks, contexts, strict=True)):
            x = block.every_second(x, own, (steps - 1) % 2**i)
        return x[-1:]
