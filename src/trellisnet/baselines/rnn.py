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
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from trellisnet.core.checks import boolean, one_of, positive_int, probability
from trellisnet.core.options import declared_by


@dataclass(eq=False, repr=False)
class RnnOptions:
    """The options of `nn.LSTM` and `nn.GRU`, of the linear map after them, and of their initialisation.

    Args:
        hidden_size: channels of every layer.
        num_layers: number of stacked layers.
        output_size: channels of a linear map of the last layer; default no map, and `hidden_size` channels.
        bias: whether the layers have biases.
        dropout: between the layers.
        init: "uniform", the initialisation of trellis networks (twice torch's bound, forget bias 1), which trains
            faster, or "torch".
    """

    hidden_size: int
    num_layers: int = 1
    output_size: int | None = None
    bias: bool = True
    dropout: float = 0.0
    init: str = "uniform"

    def __post_init__(self) -> None:
        self.hidden_size = positive_int("hidden_size", self.hidden_size)
        self.num_layers = positive_int("num_layers", self.num_layers)
        self.output_size = positive_int(
            "output_size", self.hidden_size if self.output_size is None else self.output_size
        )
        self.bias = boolean("bias", self.bias)
        self.dropout = probability("dropout", self.dropout)
        if self.dropout and self.num_layers == 1:
            raise ValueError(f"dropout acts between layers: got dropout={self.dropout} with num_layers=1")
        self.init = one_of("init", self.init, ("uniform", "torch"))


@dataclass(eq=False, repr=False)
class _Arguments(RnnOptions):
    device: torch.device | str | None = None
    dtype: torch.dtype | None = None


class RnnBody(RnnOptions, nn.Module):
    """The common base of `LstmBody` and `GruBody`."""

    kind: type[nn.LSTM] | type[nn.GRU]
    output_size: int  # never None after the checks of `RnnOptions`
    receptive_field = None

    @declared_by(_Arguments)
    def __init__(self, input_size: int, *args: Any, device: Any = None, dtype: Any = None, **options: Any) -> None:
        nn.Module.__init__(self)
        self.input_size = positive_int("input_size", input_size)
        RnnOptions.__init__(self, *args, **options)
        where = {"device": device, "dtype": dtype}
        sizes = (self.input_size, self.hidden_size, self.num_layers, self.bias)
        self.rnn = self.kind(*sizes, dropout=self.dropout, **where)
        self.down: nn.Linear | None = None
        if self.output_size != self.hidden_size:
            self.down = nn.Linear(self.hidden_size, self.output_size, **where)
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
        down = nn.Identity() if self.down is None else self.down
        if lengths is None:
            y, state = self.rnn(x, state)
            return down(y), state
        packed = pack_padded_sequence(x, torch.as_tensor(lengths, device="cpu"), enforce_sorted=False)
        y, state = self.rnn(packed, state)
        return pad_packed_sequence(PackedSequence(down(y.data), *y[1:]), total_length=len(x))[0], state


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
