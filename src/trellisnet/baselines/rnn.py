"""torch's own `nn.LSTM` and `nn.GRU` as bodies: the standard baselines.

LSTM  i, f, o = sigmoid(W x_t + U h_{t-1} + b)   g = tanh(W x_t + U h_{t-1} + b)
c_t = f c_{t-1} + i g                      h_t = o tanh(c_t)        (Hochreiter, Schmidhuber, 1997)
GRU   r, z = sigmoid(W x_t + U h_{t-1} + b)      n = tanh(W x_t + b + r (U h_{t-1} + b'))
h_t = (1 - z) n + z h_{t-1}                                         (Cho et al., 2014)

Variational dropout (Gal, Ghahramani, 2016) multiplies h_{t-1} in the products, and the input of a layer, by a mask that
is the same at every step. DropConnect (Wan et al., 2013; Merity et al., 2018: AWD-LSTM) drops entries of U. With skip
connections (Melis et al., 2018) the output is the sum of the outputs of all layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from trellisnet.baselines.base import Baseline, BaselineOptions, without_padding
from trellisnet.baselines.steps import States, Step, masked, run_steps, sequence_mask
from trellisnet.core.checks import boolean, one_of, positive_int, probability


@dataclass(eq=False, repr=False)
class RnnOptions(BaselineOptions):
    """The options of `nn.LSTM` and `nn.GRU`, of the linear map after them, of their initialisation and dropout.

    Args:
        bias: whether the layers have biases.
        dropout: between the layers.
        init: "uniform", the initialisation of trellis networks (twice torch's bound, forget bias 1), which trains
            faster, or "torch".
        variational: draw the masks of `dropout` once per sequence instead of at every step.
        hidden_dropout: of the hidden state where the next step reads it, one mask per sequence and layer. Training then
            loops over the steps in Python, which is slower.
        weight_dropout: DropConnect, dropout of the entries of the hidden-to-hidden matrices, one mask per call.
        skip: the output is the sum of the outputs of all layers.
        last_size: channels of the last layer, where they differ from `hidden_size`, as in AWD-LSTM, whose last layer is
            as wide as a tied embedding. The default `output_size` is then this width.
    """

    bias: bool = True
    dropout: float = 0.0
    init: str = "uniform"
    variational: bool = False
    hidden_dropout: float = 0.0
    weight_dropout: float = 0.0
    skip: bool = False
    last_size: int | None = None

    def __post_init__(self) -> None:
        if self.last_size is not None:
            self.last_size = positive_int("last_size", self.last_size)
            self.output_size = self.last_size if self.output_size is None else self.output_size
        super().__post_init__()
        self.bias = boolean("bias", self.bias)
        self.dropout = probability("dropout", self.dropout)
        if self.dropout and self.num_layers == 1:
            raise ValueError(f"dropout acts between layers: got dropout={self.dropout} with num_layers=1")
        self.init = one_of("init", self.init, ("uniform", "torch"))
        self.variational = boolean("variational", self.variational)
        self.hidden_dropout = probability("hidden_dropout", self.hidden_dropout)
        self.weight_dropout = probability("weight_dropout", self.weight_dropout)
        self.skip = boolean("skip", self.skip)
        if self.last_size is not None and (self.num_layers == 1 or self.skip):
            got = f"last_size={self.last_size}, num_layers={self.num_layers} and skip={self.skip}"
            raise ValueError(f"last_size needs num_layers >= 2 and skip=False: got {got}")


class RnnBody(Baseline, RnnOptions):
    """The common base of `LstmBody` and `GruBody`."""

    kind: type[nn.LSTM] | type[nn.GRU]
    output_size: int  # never None after the checks of `RnnOptions`

    @property
    def features(self) -> int:
        """Channels of the last layer."""
        return self.hidden_size if self.last_size is None else self.last_size

    def build(self, where: dict[str, Any]) -> None:
        alike = self.num_layers - (self.last_size is not None)  # torch stacks layers of one width only
        dropout = self.dropout if alike > 1 else 0.0
        self.rnn = self.kind(self.input_size, self.hidden_size, alike, self.bias, dropout=dropout, **where)
        self.last: nn.LSTM | nn.GRU | None = None
        if self.last_size is not None:
            self.last = self.kind(self.hidden_size, self.last_size, bias=self.bias, **where)
        if self.init == "uniform":
            for stack in self._stacks():
                init_like_trellis(stack)

    @property
    def input_scale(self) -> float | None:
        """The scale of embeddings that the initialisation expects, the same as for a trellis network."""
        return 6.0 if self.init == "uniform" else None

    def forward(
        self, x: Tensor, state: Any = None, *, lengths: Sequence[int] | Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Run x (T, B, C) from a state; return outputs (T, B, O) and the new state.

        The state is h or (h, c), each (layers, B, H); with `last_size` a pair of such states, of the layers before the
        last and of the last. With `lengths`, the state is the one at each sequence's own end, and outputs beyond it are
        zero.
        """
        lengths = None if lengths is None else torch.as_tensor(lengths, device="cpu")
        if self.last is None:
            x, state = self._run_stack(self.rnn, x, state, lengths)
        else:
            before, of_last = (None, None) if state is None else state
            x, before = self._run_stack(self.rnn, x, before, lengths)
            x, of_last = self._run_stack(self.last, self._drop_between(x), of_last, lengths)
            state = before, of_last
        return self.project(x, lengths), state

    def _stacks(self) -> list[nn.LSTM | nn.GRU]:
        """The layers, as torch's modules of layers of one width."""
        return [self.rnn] if self.last is None else [self.rnn, self.last]

    def _run_stack(self, rnn: nn.LSTM | nn.GRU, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        if self._needs_layers():
            return self._run_layers(rnn, x, state, lengths)
        if lengths is None:
            return cast("tuple[Tensor, Any]", rnn(x, state))
        y, state = rnn(pack_padded_sequence(x, lengths, enforce_sorted=False), state)
        return pad_packed_sequence(y, total_length=len(x))[0], state

    def _needs_layers(self) -> bool:
        """Whether this call runs layer by layer; otherwise torch runs all layers of one width together."""
        drops = self.hidden_dropout or self.weight_dropout or (self.variational and self.dropout)
        return self.skip or (self.training and bool(drops))

    def _drop_between(self, x: Tensor) -> Tensor:
        """Apply the dropout between two layers to x (T, B, H)."""
        if not self.dropout or not self.training:
            return x
        mask = sequence_mask(x, x.shape[-1], self.dropout) if self.variational else None
        return F.dropout(x, self.dropout) if mask is None else x * mask

    def _run_layers(self, rnn: nn.LSTM | nn.GRU, x: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        has_memory = self.kind is nn.LSTM
        if state is None:
            start = x.new_zeros(rnn.num_layers, x.shape[1], rnn.hidden_size)
            state = (start, start) if has_memory else start
        x = without_padding(x, lengths)
        given = state if has_memory else (state,)
        total, ends = None, []
        for layer in range(rnn.num_layers):
            x = self._drop_between(x) if layer else x
            states = tuple(tensor[layer : layer + 1] for tensor in given)
            x, states = self._run_layer(x, states, self._weights(rnn, layer), lengths)
            ends.append(states)
            total = x if total is None or not self.skip else total + x
        assert total is not None
        after = tuple(torch.cat(kind) for kind in zip(*ends, strict=True))
        return total, after if has_memory else after[0]

    def _weights(self, rnn: nn.LSTM | nn.GRU, layer: int) -> list[Tensor]:
        """The parameters of a layer, W, U, b and b', with the mask of DropConnect on U."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[: 4 if self.bias else 2]
        weights = [getattr(rnn, f"{name}_l{layer}") for name in names]
        weights[1] = F.dropout(weights[1], self.weight_dropout, self.training)
        return weights

    def _run_layer(
        self, x: Tensor, states: States, weights: list[Tensor], lengths: Tensor | None
    ) -> tuple[Tensor, States]:
        """Run one layer from states (1, B, H)."""
        if self.training and self.hidden_dropout:
            return self._loop(x, states, weights, lengths)
        fused: Any = torch.lstm if self.kind is nn.LSTM else torch.gru
        options = (weights, self.bias, 1, 0.0, self.training, False)  # layers, dropout, training, bidirectional
        first: Any = states if self.kind is nn.LSTM else states[0]
        if lengths is None:
            y, *after = fused(x, first, *options, False)  # batch_first
            return y, tuple(after)
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        first = self.rnn.permute_hidden(first, packed.sorted_indices)
        data, *after = fused(packed.data, packed.batch_sizes, first, *options)
        y = pad_packed_sequence(PackedSequence(data, *packed[1:]), total_length=len(x))[0]
        order = packed.unsorted_indices
        return y, tuple(tensor.index_select(1, order) for tensor in after)

    def _loop(self, x: Tensor, states: States, weights: list[Tensor], lengths: Tensor | None) -> tuple[Tensor, States]:
        """Run one layer step by step, from states (1, B, H)."""
        mask = sequence_mask(x, states[0].shape[-1], self.hidden_dropout if self.training else 0.0)
        inputs = F.linear(x, weights[0], weights[2] if self.bias else None)  # (T, B, gates)
        step = self._step(weights[1], weights[3] if self.bias else None, mask)
        y, after = run_steps(step, inputs, tuple(tensor[0] for tensor in states), lengths)
        return y, tuple(tensor.unsqueeze(0) for tensor in after)

    def _step(self, u: Tensor, bias: Tensor | None, mask: Tensor | None) -> Step:
        """Return the function of a step, with the recurrent weights and the mask of the hidden state."""
        raise TypeError(f"{type(self).__name__} does not define _step(u, bias, mask)")


class LstmBody(RnnBody):
    """`nn.LSTM` as a body.

    >>> body = LstmBody(3, hidden_size=8)
    >>> y, (h, c) = body(torch.randn(10, 2, 3))
    >>> tuple(y.shape)
    (10, 2, 8)
    """

    kind = nn.LSTM

    def _step(self, u: Tensor, bias: Tensor | None, mask: Tensor | None) -> Step:
        def step(a: Tensor, states: States) -> tuple[Tensor, States]:
            h, c = states
            i, f, g, o = (a + F.linear(masked(h, mask), u, bias)).chunk(4, -1)
            c = self._remember(i.sigmoid(), f.sigmoid(), g.tanh(), c)
            h = o.sigmoid() * c.tanh()
            return h, (h, c)

        return step

    def _remember(self, i: Tensor, f: Tensor, g: Tensor, c: Tensor) -> Tensor:
        """Return the next memory from the gates, the new values g and the memory."""
        return f * c + i * g


class GruBody(RnnBody):
    """`nn.GRU` as a body."""

    kind = nn.GRU

    def _step(self, u: Tensor, bias: Tensor | None, mask: Tensor | None) -> Step:
        def step(a: Tensor, states: States) -> tuple[Tensor, States]:
            (h,) = states
            b = F.linear(masked(h, mask), u, bias)
            size = 2 * h.shape[-1]  # of r and z
            (r, z), n = (a + b)[:, :size].sigmoid().chunk(2, -1), a[:, size:]
            n = (n + r * b[:, size:]).tanh()
            h = n + z * (h - n)
            return h, (h,)

        return step


def init_like_trellis(rnn: nn.LSTM | nn.GRU) -> None:
    """Initialise as a trellis network: twice torch's bound, biases 0, and the forget gate open with a bias of 1."""
    bound = 2 / math.sqrt(rnn.hidden_size)
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            if name.startswith("weight"):
                parameter.uniform_(-bound, bound)
            else:
                parameter.zero_()
                if isinstance(rnn, nn.LSTM) and name.startswith("bias_ih"):
                    parameter[rnn.hidden_size : 2 * rnn.hidden_size] = 1.0  # the forget gate
