"""The HyperLSTM (Ha, Dai, Le, HyperNetworks, ICLR 2017): a small LSTM scales the weights of a larger one at every step.

k_t, m_t = small LSTM of [x_t, h_{t-1}], with layer normalisation, from k_{t-1}, m_{t-1}
z_x = A_x k_t + e_x      z_h = A_h k_t + e_h      z_b = A_b k_t                       one of each per gate
a = (P_x z_x) (W x_t) + (P_h z_h) (U h_{t-1}) + P_b z_b + b                           per gate
i, g, f, o = LN(a)       c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g)      h_t = sigmoid(o) tanh(LN(c_t))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.baselines.gate_norm import GateNorm
from trellisnet.baselines.steps import RecurrentBody, RecurrentLayer, StackOptions, States, Step
from trellisnet.core.checks import positive_int, probability

FACTOR = 0.1  # of W and U at the start


@dataclass(eq=False, repr=False)
class HyperLstmOptions(StackOptions):
    """The options of a HyperLSTM.

    Args:
        hyper_size: channels of the small LSTM; default an eighth of `hidden_size`, at least 4.
        factor_size: channels of z, from which the factors of a gate are computed.
        value_dropout: of the values that a step adds to the memory (Semeniuta et al., 2016), at every step anew.
    """

    hyper_size: int | None = None
    factor_size: int = 4
    value_dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        given = max(4, self.hidden_size // 8) if self.hyper_size is None else self.hyper_size
        self.hyper_size = positive_int("hyper_size", given)
        self.factor_size = positive_int("factor_size", self.factor_size)
        self.value_dropout = probability("value_dropout", self.value_dropout)


class HyperLstmLayer(RecurrentLayer):
    """A layer of a HyperLSTM. Its states are h, c of the large LSTM and k, m of the small one."""

    def __init__(self, input_size: int, options: HyperLstmOptions, where: dict[str, Any]) -> None:
        super().__init__()
        size, small, factor = options.hidden_size, options.hyper_size, options.factor_size
        assert small is not None
        self.sizes, self.value_dropout = (size, small), options.value_dropout
        self.input = nn.Linear(input_size, 4 * (size + small), bias=False, **where)  # of both LSTMs
        self.hidden = nn.Linear(size, 4 * (size + small), bias=False, **where)  # of both LSTMs
        self.hyper_hidden = nn.Linear(small, 4 * small, bias=False, **where)
        self.hyper_gates, self.gates = GateNorm(small, where), GateNorm(size, where)
        self.z_weight = nn.Parameter(torch.zeros(3 * 4 * factor, small, **where))  # A_x, A_h, A_b of all gates
        self.z_bias = nn.Parameter(torch.ones(2 * 4 * factor, **where))  # e_x, e_h
        self.factors = nn.Parameter(torch.full((3 * 4, factor, size), FACTOR / factor, **where))  # P_x, P_h, P_b
        self.bias = nn.Parameter(torch.zeros(4, size, **where))
        nn.init.normal_(self.z_weight[2 * 4 * factor :], std=0.01)
        nn.init.zeros_(self.factors[2 * 4 :])

    def start(self, x: Tensor) -> States:
        return tuple(x.new_zeros(x.shape[1], size) for size in self.sizes for _ in range(2))

    def begin(self, x: Tensor) -> tuple[Tensor, Step]:
        size, small = self.sizes
        split = [4 * size, 4 * small]
        value_dropout = self.value_dropout if self.training else 0.0
        z_bias = F.pad(self.z_bias, (0, len(self.z_weight) - len(self.z_bias)))
        factors = self.factors

        def step(read: Tensor, states: States) -> tuple[Tensor, States]:
            h, c, k, m = states
            wx, hyper_x = read.split(split, -1)
            uh, hyper_h = self.hidden(h).split(split, -1)
            k, m = self.hyper_gates(hyper_x + hyper_h + self.hyper_hidden(k), m)
            z = F.linear(k, self.z_weight, z_bias).unflatten(-1, (len(factors), -1))  # (B, 12, F)
            p = torch.bmm(z.transpose(0, 1), factors).transpose(0, 1)  # (B, 12, H)
            scale_x, scale_h, shift = p.chunk(3, 1)  # (B, 4, H)
            a = scale_x * wx.unflatten(-1, (4, -1)) + scale_h * uh.unflatten(-1, (4, -1)) + shift + self.bias
            h, c = self.gates(a.flatten(1), c, value_dropout)
            return h, (h, c, k, m)

        return self.input(x), step


class HyperLstmBody(RecurrentBody, HyperLstmOptions):
    """A HyperLSTM as a body. Its state is h, c of the large LSTM and k, m of the small one, each (layers, B, size)."""

    def build(self, where: dict[str, Any]) -> None:
        self.stack(lambda size: HyperLstmLayer(size, self, where))
