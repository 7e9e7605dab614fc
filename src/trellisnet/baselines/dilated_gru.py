"""A stack of dilated GRUs (Chang et al., Dilated Recurrent Neural Networks, NeurIPS 2017).

Layer l = 0, 1, ... is a GRU in which step t continues from step t - 2^l:
r, z = sigmoid(W x_t + U h_{t-d} + b)      n = tanh(W x_t + b + r (U h_{t-d} + b'))
h_t = (1 - z) n + z h_{t-d}                d = 2^l

Steps t, t + d, t + 2d, ... of a layer are a sequence of their own. The d sequences run together, as one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.baselines.base import Baseline, last_steps, without_padding
from trellisnet.baselines.rnn import init_like_trellis
from trellisnet.baselines.steps import StackOptions, States, masked, sequence_mask


@dataclass(eq=False, repr=False)
class DilatedGruOptions(StackOptions):
    """The options of a stack of dilated GRUs.

    Args:
        num_layers: number of stacked layers; layer l has the dilation 2^l.
    """

    num_layers: int = 9


class DilatedGruBody(Baseline, DilatedGruOptions):
    """A stack of dilated GRUs as a body.

    Its state has one tensor per layer: the last 2^l hidden states (2^l, B, H), the oldest first.
    """

    output_size: int  # never None after the checks of `BaselineOptions`
    input_scale = 6.0  # the initialisation is that of a trellis network

    def build(self, where: dict[str, Any]) -> None:
        sizes = [self.input_size, *[self.hidden_size] * (self.num_layers - 1)]
        self.layers = nn.ModuleList(nn.GRU(size, self.hidden_size, **where) for size in sizes)
        for layer in self.layers:
            init_like_trellis(layer)  # type: ignore[arg-type]

    def forward(
        self, x: Tensor, state: States | None = None, *, lengths: Sequence[int] | Tensor | None = None
    ) -> tuple[Tensor, States]:
        """Run x (T, B, C) from a state; return outputs (T, B, O) and the new state.

        With `lengths`, the state is the one at each sequence's own end, and outputs beyond it are zero.
        """
        x = without_padding(x, lengths)
        if state is None:
            state = tuple(x.new_zeros(2**layer, x.shape[1], self.hidden_size) for layer in range(self.num_layers))
        after = []
        for layer, (gru, past) in enumerate(zip(self.layers, state, strict=True)):
            if layer and self.training:
                x = masked(x, sequence_mask(x, x.shape[-1], self.dropout))
            x = _dilated(gru, x, past)
            after.append(last_steps(torch.cat([past, x]), len(past), lengths))
        return self.project(x, lengths), tuple(after)


def _dilated(gru: nn.Module, x: Tensor, past: Tensor) -> Tensor:
    """Run a GRU on x (T, B, C) in which a step continues from the d-th before it; `past` (d, B, H) are those before x.

    The step t = n d + p is step n of sequence p, which begins from past[p].
    """
    steps, batch = x.shape[:2]
    sequences = min(len(past), steps)
    x = F.pad(x, (0, 0, 0, 0, 0, -steps % sequences))
    folded = x.view(-1, sequences * batch, x.shape[-1])  # (n, p B, C)
    y: Tensor = gru(folded, past[:sequences].reshape(1, sequences * batch, -1))[0]
    return y.view(-1, batch, y.shape[-1])[:steps]
