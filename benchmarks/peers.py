"""The networks that the core is measured against, and the shapes of the measurements."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    """A training step: sizes of the net, of the batch, and how many last steps are read (None: all)."""

    name: str
    input_size: int
    hidden_size: int
    num_layers: int
    steps: int
    batch: int
    tail: int | None = None
    dilation: tuple[int, ...] = (1,)


PIXELS = Shape("pixels", 1, 130, 11, 784, 64, 1, (1, 1, *(2**i for i in range(1, 10))))
WORDS = Shape("words", 400, 700, 58, 110, 4, 52)
FULL = Shape("full", 200, 600, 40, 128, 8)
SHAPES = {shape.name: shape for shape in (PIXELS, WORDS, FULL)}


class PlainTrellis(nn.Module):
    """The trellis network with LSTM gates as most people would write it: conv1d, padding, autograd.

    It is not careless: the input's contribution is computed once for each dilation, as the paper proposes.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.hidden_size
        self.shape = shape
        self.weight_input = nn.Parameter(torch.empty(4 * width, shape.input_size, 2))
        self.weight_hidden = nn.Parameter(torch.empty(4 * width, width, 2))
        self.bias = nn.Parameter(torch.zeros(4 * width))
        bound = 0.7 / width**0.5
        nn.init.uniform_(self.weight_input, -bound, bound)
        nn.init.uniform_(self.weight_hidden, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, T) -> (B, H, T)
        dilations = [self.shape.dilation[i % len(self.shape.dilation)] for i in range(self.shape.num_layers)]
        injected = {d: F.conv1d(F.pad(x, (d, 0)), self.weight_input, self.bias, dilation=d) for d in set(dilations)}
        h = c = x.new_zeros(x.shape[0], self.shape.hidden_size, x.shape[2])
        for d in dilations:
            pre = F.conv1d(F.pad(h, (d, 0)), self.weight_hidden, dilation=d) + injected[d]
            i, f, o, g = pre.chunk(4, dim=1)
            before = F.pad(c, (d, 0))[..., :-d] if d < c.shape[2] else torch.zeros_like(c)
            c = f.sigmoid() * before + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h


def make_tcn(shape: Shape) -> nn.Module:
    """A temporal convolutional network of the package `pytorch-tcn`, as wide, reaching back as far as the data."""
    from pytorch_tcn import TCN  # noqa: PLC0415

    levels = max(1, (shape.steps - 1).bit_length() - 1)
    tcn: nn.Module = TCN(shape.input_size, [shape.hidden_size] * levels, kernel_size=2, dropout=0.0)
    return tcn
