"""Theorem 1: every truncated RNN is a trellis network with a mixed-group kernel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from trellisnet.core.checks import one_of, positive_int
from trellisnet.core.trellis import TrellisNet

_LSTM_ORDER = (0, 1, 3, 2)  # torch: input, forget, candidate, output; ours: the candidate last


def from_rnn(rnn: nn.RNNBase | Sequence[nn.RNNBase], horizon: int | None = None, *, path: str = "layers") -> TrellisNet:
    """Turn a trained `nn.RNN`, `nn.LSTM` or `nn.GRU` into an equal trellis network of horizon M.

    At every step t, the output is that of the RNN run on the window x[t-M+1 .. t] from a zero state (on x[0 .. t] while
    t < M). A list of single-layer modules is an RNN with layers of different widths. The result is an ordinary
    `TrellisNet` of depth M+L-1: it trains, streams and saves, and `densify` frees it of the sparse kernel. Dropout
    between the RNN's layers is not copied.

    With `path="steps"` the net takes one step of time after the other, as the RNN does: it is equal to the RNN itself,
    without a horizon, with one layer per layer of the RNN, and a stream costs about as much. The weights are the same,
    so that either net can be run the other way.

    >>> lstm = nn.LSTM(3, 8, num_layers=2)
    >>> x = torch.randn(20, 1, 3)
    >>> y, _ = from_rnn(lstm, horizon=20)(x)
    >>> torch.allclose(y, lstm(x)[0], atol=1e-6)
    True
    >>> torch.allclose(from_rnn(lstm, path="steps")(x)[0], lstm(x)[0], atol=1e-6)
    True
    """
    if one_of("path", path, ("layers", "steps")) == "layers":
        horizon = positive_int("horizon", horizon)
    elif horizon is not None:
        raise ValueError(f"horizon must be None with path='steps', which sees the whole past, got {horizon}")
    modules: list[Any] = list(rnn) if isinstance(rnn, (list, tuple, nn.ModuleList)) else [rnn]
    if not modules:
        raise ValueError("rnn must not be an empty list")
    for module in modules:
        _check(module, alone=len(modules) == 1)
    first = modules[0]
    for below, module in pairwise(modules):
        if _kind(module) != _kind(first):
            raise ValueError(f"rnn: all modules must be of one kind, got {_kind(first)} and {_kind(module)}")
        if module.input_size != below.hidden_size:
            raise ValueError(
                f"rnn: a module of input_size {module.input_size} follows one of hidden_size {below.hidden_size}"
            )
    layers = [(module, f"_l{i}") for module in modules for i in range(module.num_layers)]
    groups = [module.hidden_size for module, _ in layers]
    net = TrellisNet(
        first.input_size,
        sum(groups),
        (horizon or 1) + len(layers) - 1,
        output_size=groups[-1],
        cell={"RNN_TANH": "tanh", "RNN_RELU": "relu", "LSTM": "lstm", "GRU": "gru"}[first.mode],
        bias=first.bias,
        batch_first=first.batch_first,
        groups=groups,
        path=path,
        device=first.weight_ih_l0.device,
        dtype=first.weight_ih_l0.dtype,
    )
    for i, (module, suffix) in enumerate(layers):
        below, past = getattr(module, "weight_ih" + suffix), getattr(module, "weight_hh" + suffix)
        net.kernel.set_weight(f"weight_below_{i}", _reorder(first.mode, below, "below").t().unsqueeze(0))
        net.kernel.set_weight(f"weight_past_{i}", _reorder(first.mode, past, "past").t().unsqueeze(0))
        if first.bias:
            biases = [getattr(module, name + suffix) for name in ("bias_ih", "bias_hh")]
            both = _reorder(first.mode, biases[0], "below") + _reorder(first.mode, biases[1], "past")
            net.kernel.set_weight(f"bias_{i}", both)
    return net.train(first.training)


def _kind(module: Any) -> str:
    weight = module.weight_ih_l0
    options = f"bias={module.bias}, batch_first={module.batch_first}"
    return f"{module.mode}({options}, dtype={weight.dtype}, device={weight.device})"


def _check(module: object, alone: bool) -> None:
    if not isinstance(module, (nn.RNN, nn.LSTM, nn.GRU)):
        raise TypeError(f"rnn must be an nn.RNN, nn.LSTM or nn.GRU, or a list of them, got {type(module).__name__}")
    if module.bidirectional:
        raise ValueError("rnn must not be bidirectional, because a trellis network is causal, got bidirectional=True")
    if module.proj_size:
        raise ValueError(f"rnn must not have a projection, got proj_size={module.proj_size}")
    if not alone and module.num_layers != 1:
        raise ValueError(f"rnn: modules in a list must have one layer each, got num_layers={module.num_layers}")


def _reorder(mode: str, rows: Tensor, part: str) -> Tensor:
    """The rows of a weight or bias in the order of our gates. `part`: it multiplies the layer "below" or the "past"."""
    if mode == "LSTM":
        gates = rows.detach().chunk(4)
        return torch.cat([gates[i] for i in _LSTM_ORDER])
    if mode == "GRU":
        # torch's reset gate multiplies the past's part of the candidate only, so each part is a gate here
        reset, update, candidate = rows.detach().chunk(3)
        zero = torch.zeros_like(candidate)
        return torch.cat([reset, update, *((candidate, zero) if part == "below" else (zero, candidate))])
    return rows.detach()
