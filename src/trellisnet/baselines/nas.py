"""The recurrent cell found by neural architecture search (Zoph, Le, ICLR 2017).

a_0 .. a_7 = W x_t        b_0 .. b_7 = U h_{t-1}        s = sigmoid
m_0 = tanh(s(a_0 + b_0) relu(a_1 + b_1))                m_1 = tanh(s(a_2 + b_2) + relu(a_3 b_3))
m_2 = tanh(tanh(a_4 + b_4) s(a_5 + b_5))                m_3 = s(tanh(a_6 + b_6) + s(a_7 + b_7))
c_t = tanh(m_0 + c_{t-1}) m_1                           h_t = tanh(c_t tanh(m_2 + m_3))
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.baselines.steps import (
    HiddenDropoutOptions,
    RecurrentBody,
    RecurrentLayer,
    States,
    Step,
    masked,
    sequence_mask,
)

GATES = 8


class NasLayer(RecurrentLayer):
    """A layer of the cell."""

    def __init__(self, input_size: int, hidden_size: int, hidden_dropout: float, where: dict[str, Any]) -> None:
        super().__init__()
        self.hidden_dropout = hidden_dropout
        bound = 1 / math.sqrt(hidden_size)
        self.w = nn.Parameter(torch.empty(GATES * hidden_size, input_size, **where).uniform_(-bound, bound))
        self.u = nn.Parameter(torch.empty(GATES * hidden_size, hidden_size, **where).uniform_(-bound, bound))

    def start(self, x: Tensor) -> States:
        zeros = x.new_zeros(x.shape[1], self.u.shape[1])
        return zeros, zeros

    def begin(self, x: Tensor) -> tuple[Tensor, Step]:
        mask = sequence_mask(x, self.u.shape[1], self.hidden_dropout if self.training else 0.0)

        def step(a: Tensor, states: States) -> tuple[Tensor, States]:
            h, c = states
            b = F.linear(masked(h, mask), self.u)
            g0, g1, g2, _, g4, g5, g6, g7 = (a + b).chunk(GATES, -1)
            product = a.chunk(GATES, -1)[3] * b.chunk(GATES, -1)[3]
            m0 = (g0.sigmoid() * g1.relu()).tanh()
            m1 = (g2.sigmoid() + product.relu()).tanh()
            m2 = (g4.tanh() * g5.sigmoid()).tanh()
            m3 = (g6.tanh() + g7.sigmoid()).sigmoid()
            c = (m0 + c).tanh() * m1
            h = (c * (m2 + m3).tanh()).tanh()
            return h, (h, c)

        return F.linear(x, self.w), step


class NasBody(RecurrentBody, HiddenDropoutOptions):
    """The cell found by neural architecture search as a body. Its state is (h, c), each (layers, B, H)."""

    def build(self, where: dict[str, Any]) -> None:
        self.stack(lambda size: NasLayer(size, self.hidden_size, self.hidden_dropout, where))
