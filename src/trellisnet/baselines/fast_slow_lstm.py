"""The Fast-Slow LSTM (Mujika, Meier, Steger, NeurIPS 2017): a slow cell between the fast cells of a step.

h, c = fast_1(x_t; h, c)       k, m = slow(h; k, m)       h, c = fast_2(k; h, c)       h, c = fast_j(; h, c), j = 3, ...

The fast cells update one state in turn, several times per step; the slow cell updates its own once. All cells are LSTMs
with layer normalisation. Zoneout (Krueger et al., 2017) keeps channels of the old state, in evaluation their share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.baselines.base import BaselineOptions
from trellisnet.baselines.gate_norm import GateNorm
from trellisnet.baselines.steps import RecurrentBody, RecurrentLayer, States, Step
from trellisnet.core.checks import layer_count, positive_int, probability


@dataclass(eq=False, repr=False)
class FastSlowLstmOptions(BaselineOptions):
    """The options of a Fast-Slow LSTM.

    Args:
        hidden_size: channels of the fast cells.
        num_layers: number of fast cells, at least 2.
        slow_size: channels of the slow cell; default `hidden_size`.
        dropout: of the hidden state between a fast cell and the slow one, at every step anew.
        zoneout_hidden: probability that a channel of a hidden state keeps its value.
        zoneout_memory: probability that a channel of a memory keeps its value.
    """

    num_layers: int = 2
    slow_size: int | None = None
    dropout: float = 0.0
    zoneout_hidden: float = 0.0
    zoneout_memory: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.num_layers = layer_count("num_layers", self.num_layers, minimum=2)
        self.slow_size = positive_int("slow_size", self.hidden_size if self.slow_size is None else self.slow_size)
        self.dropout = probability("dropout", self.dropout)
        self.zoneout_hidden = probability("zoneout_hidden", self.zoneout_hidden)
        self.zoneout_memory = probability("zoneout_memory", self.zoneout_memory)


class Cell(nn.Module):
    """An LSTM cell with layer normalisation and zoneout; its input comes as a product with its weights."""

    def __init__(self, size: int, options: FastSlowLstmOptions, where: dict[str, Any]) -> None:
        super().__init__()
        self.zoneouts = options.zoneout_hidden, options.zoneout_memory
        self.hidden = nn.Linear(size, 4 * size, **where)
        nn.init.zeros_(self.hidden.bias)
        self.gates = GateNorm(size, where)

    def forward(self, pre: Tensor | None, h: Tensor, c: Tensor) -> States:
        a = self.hidden(h)
        after = self.gates(a if pre is None else a + pre, c)
        old = (h, c)
        return tuple(self._zoneout(*each) for each in zip(old, after, self.zoneouts, strict=True))

    def _zoneout(self, old: Tensor, new: Tensor, share: float) -> Tensor:
        if not share:
            return new
        if not self.training:
            return new + share * (old - new)
        return torch.where(torch.rand_like(new) < share, old, new)


class FastSlowLayer(RecurrentLayer):
    """All cells. Their states are h, c of the fast cells and k, m of the slow one."""

    def __init__(self, input_size: int, options: FastSlowLstmOptions, where: dict[str, Any]) -> None:
        super().__init__()
        fast, slow = options.hidden_size, options.slow_size
        assert slow is not None
        self.sizes, self.dropout = (fast, slow), options.dropout
        self.fast = nn.ModuleList(Cell(fast, options, where) for _ in range(options.num_layers))
        self.slow = Cell(slow, options, where)
        self.from_input = nn.Linear(input_size, 4 * fast, bias=False, **where)
        self.from_fast = nn.Linear(fast, 4 * slow, bias=False, **where)
        self.from_slow = nn.Linear(slow, 4 * fast, bias=False, **where)

    def start(self, x: Tensor) -> States:
        return tuple(x.new_zeros(x.shape[1], size) for size in self.sizes for _ in range(2))

    def begin(self, x: Tensor) -> tuple[Tensor, Step]:
        first, second, *others = self.fast

        def step(read: Tensor, states: States) -> tuple[Tensor, States]:
            h, c, k, m = states
            h, c = first(read, h, c)
            k, m = self.slow(self.from_fast(F.dropout(h, self.dropout, self.training)), k, m)
            h, c = second(self.from_slow(F.dropout(k, self.dropout, self.training)), h, c)
            for cell in others:
                h, c = cell(None, h, c)
            return h, (h, c, k, m)

        return self.from_input(x), step


class FastSlowLstmBody(RecurrentBody, FastSlowLstmOptions):
    """A Fast-Slow LSTM as a body. Its state is h, c of the fast cells and k, m of the slow one, each (1, B, size)."""

    def build(self, where: dict[str, Any]) -> None:
        self.layers = nn.ModuleList([FastSlowLayer(self.input_size, self, where)])
