"""torch's own `nn.LSTM` and `nn.GRU` as bodies: the standard baselines.

LSTM  i, f, o = sigmoid(W x_t + U h_{t-1} + b)   g = tanh(W x_t + U h_{t-1} + b)
c_t = f c_{t-1} + i g                      h_t = o tanh(c_t)        (Hochreiter, Schmidhuber, 1997)
GRU   r, z = sigmoid(W x_t + U h_{t-1} + b)      n = tanh(W x_t + b + r (U h_{t-1} + b'))
h_t = (1 - z) n + z h_{t-1}                                         (Cho et al., 2014)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from trellisnet.baselines.base import Baseline, BaselineOptions
from trellisnet.core.checks import boolean, one_of, probability


@dataclass(eq=False, repr=False)
class RnnOptions(BaselineOptions):
    """The options of `nn.LSTM` and `nn.GRU`, of the linear map after them, and of their initialisation.

    Args:
        bias: whether the layers have biases.
        dropout: between the layers.
        init: "uniform", the initialisation of trellis networks (twice torch's bound, forget bias 1), which trains
            faster, or "torch".
    """

    bias: bool = True
    dropout: float = 0.0
    init: str = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.bias = boolean("bias", self.bias)
        self.dropout = probability("dropout", self.dropout)
        if self.dropout and self.num_layers == 1:
            raise ValueError(f"dropout acts between layers: got dropout={self.dropout} with num_layers=1")
        self.init = one_of("init", self.init, ("uniform", "torch"))


class RnnBody(Baseline, RnnOptions):
    """The common base of `LstmBody` and `GruBody`."""

    kind: type[nn.LSTM] | type[nn.GRU]
    output_size: int  # never None after the checks of `RnnOptions`

    def build(self, where: dict[str, Any]) -> None:
        sizes = (self.input_size, self.hidden_size, self.num_layers, self.bias)
        self.rnn = self.kind(*sizes, dropout=self.dropout, **where)
        if self.init == "uniform":
            self._init_like_trellis()

    @property
    def input_scale(self) -> float | None:
        """The scale of embeddings that the initialisation expects, the same as for a trellis network."""
        return 6.0 if self.init == "uniform" else None

    def _init_like_trellis(self) -> None:
        bound = 2 / math.sqrt(self.hidden_size)
        with torch.no_grad():
            for name, parameter in self.rnn.named_parameters():
                if name.startswith("weight"):
                    parameter.uniform_(-bound, bound)
                else:
                    parameter.zero_()
                    if self.kind is nn.LSTM and name.startswith("bias_ih"):
                        parameter[self.hidden_size : 2 * self.hidden_size] = 1.0  # the forget gate

    def forward(
        self, x: Tensor, state: Any = None, *, lengths: Sequence[int] | Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Run x (T, B, C) from a state h or (h, c), each (layers, B, H); return outputs (T, B, O) and the new state.

        With `lengths`, the state is the one at each sequence's own end, and outputs beyond it are zero.
        """
        if lengths is None:
            y, state = self.rnn(x, state)
            return self.project(y), state
        packed = pack_padded_sequence(x, torch.as_tensor(lengths, device="cpu"), enforce_sorted=False)
        y, state = self.rnn(packed, state)
        return self.project(pad_packed_sequence(y, total_length=len(x))[0], lengths), state


class LstmBody(RnnBody):
    """`nn.LSTM` as a body.

    >>> body = LstmBody(3, hidden_size=8)
    >>> y, (h, c) = body(torch.randn(10, 2, 3))
    >>> tuple(y.shape)
    (10, 2, 8)
    """

    kind = nn.LSTM


class GruBody(RnnBody):
    """`nn.GRU` as a body."""

    kind = nn.GRU
