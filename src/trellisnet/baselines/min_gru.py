"""The minimal GRU (Feng et al., 2024): its gate and candidate depend on the input only.

minGRU  z_t = sigmoid(W x_t + b)    n_t = V x_t + c    h_t = (1 - z_t) h_{t-1} + z_t n_t
Block   y = x + minGRU(norm(x))     then y + B gelu(A norm(y) + a) + b, norm a layer normalisation

Where widths differ, the first block reads a linear map of the input. A last normalisation follows the last block.

L. Feng, F. Tung, M. O. Ahmed, Y. Bengio, H. Hajimirsadeghi: Were RNNs All We Needed? arXiv:2410.01201.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.baselines.base import BaselineOptions
from trellisnet.baselines.scan import ScanBody, scan
from trellisnet.core.checks import positive_int, probability


@dataclass(eq=False, repr=False)
class MinGruOptions(BaselineOptions):
    """The options of a stack of minimal GRUs.

    Args:
        num_layers: number of blocks.
        feed_forward: width of the feed-forward layers, as a multiple of hidden_size; 0: none.
        dropout: on what a block adds to its input.
    """

    num_layers: int = 3
    feed_forward: int = 2
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.feed_forward = positive_int("feed_forward", self.feed_forward, minimum=0)
        self.dropout = probability("dropout", self.dropout)


class MinGruBlock(nn.Module):
    """A minimal GRU and a feed-forward layer, each with a connection around it."""

    def __init__(self, options: MinGruOptions, where: dict[str, Any]) -> None:
        super().__init__()
        width, inner = options.hidden_size, options.hidden_size * options.feed_forward
        self.norm = nn.LayerNorm(width, **where)
        self.gates = nn.Linear(width, 2 * width, **where)
        self.feed_forward = None
        if inner:
            self.feed_forward = nn.Sequential(
                nn.LayerNorm(width, **where),
                nn.Linear(width, inner, **where),
                nn.GELU(),
                nn.Linear(inner, width, **where),
            )
        self.dropout = options.dropout

    def forward(self, x: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the outputs and the states h, both (T, B, H), from the state `first` (B, H)."""
        pre = self.gates(self.norm(x)).to(self.gates.bias.dtype)  # autocast must not round h at every step
        z, new = pre.chunk(2, -1)
        z = z.sigmoid()
        h = scan(1 - z, z * new, first)
        x = x + F.dropout(h, self.dropout, self.training)
        if self.feed_forward is not None:
            x = x + F.dropout(self.feed_forward(x), self.dropout, self.training)
        return x, h


class MinGruBody(ScanBody, MinGruOptions):
    """A stack of minimal GRUs as a body. Its state is h (layers, B, H).

    >>> import torch
    >>> body = MinGruBody(3, hidden_size=8)
    >>> y, h = body(torch.randn(10, 2, 3))
    >>> tuple(y.shape), tuple(h.shape)
    ((10, 2, 8), (3, 2, 8))
    """

    def build(self, where: dict[str, Any]) -> None:
        self.stack(lambda: MinGruBlock(self, where), where)
