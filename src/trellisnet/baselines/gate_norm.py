"""The end of a step of an LSTM with layer normalisation (Ba, Kiros, Hinton, 2016), for baselines that have one inside.

i, g, f, o = LN(a)        c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g)        h_t = sigmoid(o) tanh(LN(c_t))

LN normalises the channels of each gate, and of the memory, to mean 0 and variance 1, times a gain, plus a bias.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPSILON = 1e-3  # of the variances, as in the code of the hyper-LSTM


class GateNorm(nn.Module):
    """The pre-activations a (B, 4 H) and the memory c_{t-1} (B, H) to h_t and c_t. The forget gate begins open."""

    def __init__(self, size: int, where: dict[str, Any]) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(4, size, **where))
        self.bias = nn.Parameter(torch.zeros(4, size, **where))
        nn.init.ones_(self.bias[2])
        self.memory_gain = nn.Parameter(torch.ones(size, **where))
        self.memory_bias = nn.Parameter(torch.zeros(size, **where))

    def forward(self, a: Tensor, c: Tensor, value_dropout: float = 0.0) -> tuple[Tensor, Tensor]:
        """Return h_t and c_t; `value_dropout` drops channels of tanh(g), at every step anew."""
        size = c.shape[-1:]
        gates = F.layer_norm(a.unflatten(-1, (4, -1)), size, eps=EPSILON) * self.gain + self.bias
        i, g, f, o = gates.unbind(-2)
        c = f.sigmoid() * c + i.sigmoid() * F.dropout(g.tanh(), value_dropout)
        h = o.sigmoid() * F.layer_norm(c, size, self.memory_gain, self.memory_bias, EPSILON).tanh()
        return h, c
