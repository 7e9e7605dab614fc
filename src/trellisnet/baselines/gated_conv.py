"""Gated convolutional networks (Dauphin, Fan, Auli, Grangier, 2017): residual blocks of gated linear units.

A gated layer, with causal convolutions and weights normalised per channel (* is a convolution):
g(x) = (W * x + b) sigmoid(V * x + c)
A block is y = x + g(x) with k taps, or y = S x + g(x) where widths differ. With a bottleneck, g is three gated layers:
one tap to a fraction of the width, k taps at this width, one tap back to the full width.

Y. N. Dauphin, A. Fan, M. Auli, D. Grangier: Language Modeling with Gated Convolutional Networks. ICML 2017,
arXiv:1612.08083.
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
class GatedConvOptions(BaselineOptions):
    """The options of a gated convolutional network.

    Args:
        num_layers: number of blocks.
        kernel_size: taps of a block's convolution.
        bottleneck: a block's convolution has hidden_size / n channels, between two layers of one tap; 1: one layer.
        dropout: on the input of every block.
    """

    num_layers: int = 8
    kernel_size: int = 4
    bottleneck: int = 1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kernel_size = positive_int("kernel_size", self.kernel_size)
        self.bottleneck = positive_int("bottleneck", self.bottleneck)
        self.dropout = probability("dropout", self.dropout)


class GatedBlock(nn.Module):
    """The gated layers of a block and the connection around them."""

    def __init__(self, input_size: int, options: GatedConvOptions, where: dict[str, Any]) -> None:
        super().__init__()
        width, inner = options.hidden_size, max(1, options.hidden_size // options.bottleneck)
        narrow = options.bottleneck > 1
        read, write = (inner, inner) if narrow else (input_size, width)
        self.narrow = causal_convolution(input_size, 2 * inner, weight_norm=True, **where) if narrow else None
        self.wide = causal_convolution(inner, 2 * width, weight_norm=True, **where) if narrow else None
        self.convolution = causal_convolution(read, 2 * write, options.kernel_size, weight_norm=True, **where)
        self.skip = None if input_size == width else nn.Linear(input_size, width, **where)
        self.dropout = options.dropout

    def forward(
        self, x: Tensor, contexts: Sequence[Tensor | None], lengths: Sequence[int] | Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the outputs (T, B, H) for x (T, B, C), and the next context of the convolution."""
        y = F.dropout(x, self.dropout, self.training)
        if self.narrow is not None:
            y = F.glu(self.narrow(y)[0])
        y, after = self.convolution(y, contexts[0], lengths)
        y = F.glu(y)
        if self.wide is not None:
            y = F.glu(self.wide(y)[0])
        return y + (x if self.skip is None else self.skip(x)), [after]


class GatedConvBody(ConvolutionBody, GatedConvOptions):
    """A gated convolutional network as a body. Its state is the left context of every block's convolution.

    >>> import torch
    >>> body = GatedConvBody(3, hidden_size=8, num_layers=5)
    >>> y, contexts = body(torch.randn(10, 2, 3))
    >>> tuple(y.shape), body.receptive_field, len(contexts)
    ((10, 2, 8), 16, 5)
    """

    def build(self, where: dict[str, Any]) -> None:
        widths = [self.input_size] + [self.hidden_size] * (self.num_layers - 1)
        self.blocks = nn.ModuleList(GatedBlock(width, self, where) for width in widths)
        self.receptive_field = 1 + self.num_layers * (self.kernel_size - 1)
