"""The LSTM of Melis, Dyer, Blunsom (ICLR 2018): a capped input gate and skip connections.

f, o = sigmoid(W x_t + U h_{t-1} + b)      i = min(sigmoid(W x_t + U h_{t-1} + b), 1 - f)
g = tanh(W x_t + U h_{t-1} + b)            c_t = f c_{t-1} + i g        h_t = o tanh(c_t)

The output is the sum of the outputs of all layers. torch has no fast form of this cell: it loops over the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trellisnet.baselines.rnn import LstmBody, RnnOptions
from trellisnet.baselines.steps import States


@dataclass(eq=False, repr=False)
class MelisOptions(RnnOptions):
    """The options of `RnnOptions`, with skip connections by default.

    Args:
        hidden_dropout: of the hidden state where the next step reads it, one mask per sequence and layer.
    """

    skip: bool = True


class MelisLstmBody(LstmBody, MelisOptions):
    """An LSTM with a capped input gate and skip connections as a body."""

    def _needs_layers(self) -> bool:
        return True

    def _run_layer(
        self, x: Tensor, states: States, weights: list[Tensor], lengths: Tensor | None
    ) -> tuple[Tensor, States]:
        return self._loop(x, states, weights, lengths)

    def _remember(self, i: Tensor, f: Tensor, g: Tensor, c: Tensor) -> Tensor:
        return f * c + torch.minimum(i, 1 - f) * g
