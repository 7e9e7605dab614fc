"""The quasi-recurrent network (Bradbury, Merity, Xiong, Socher, 2016), with the zoneout of AWD-QRNN.

Every layer, with causal convolutions (* is a convolution):
z = tanh(W * x + b)    f = sigmoid(V * x + c)    o = sigmoid(U * x + d)
c_t = f_t c_{t-1} + (1 - f_t) z_t    h_t = o_t c_t
Zoneout sets 1 - f to zero at random, so that c keeps its value; without training it multiplies 1 - f by its mean.

J. Bradbury, S. Merity, C. Xiong, R. Socher: Quasi-Recurrent Neural Networks. ICLR 2017, arXiv:1611.01576.
S. Merity, N. S. Keskar, R. Socher: An Analysis of Neural Language Modeling at Multiple Scales. arXiv:1803.08240.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.baselines.base import Baseline, BaselineOptions, state_at_ends, without_padding
from trellisnet.baselines.convolution import causal_convolution
from trellisnet.baselines.scan import scan
from trellisnet.core.checks import one_of, positive_int, probability


@dataclass(eq=False, repr=False)
class QrnnOptions(BaselineOptions):
    """The options of a quasi-recurrent network.

    Args:
        kernel_size: taps of the convolutions.
        convolved: "first": only the convolution of the first layer has several taps, as in AWD-QRNN; "all": every one.
        dropout: between the layers.
        zoneout: probability with which a channel keeps its memory at a step.
    """

    num_layers: int = 2
    kernel_size: int = 2
    convolved: str = "first"
    dropout: float = 0.0
    zoneout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kernel_size = positive_int("kernel_size", self.kernel_size)
        self.convolved = one_of("convolved", self.convolved, ("first", "all"))
        self.dropout = probability("dropout", self.dropout)
        if self.dropout and self.num_layers == 1:
            raise ValueError(f"dropout acts between layers: got dropout={self.dropout} with num_layers=1")
        self.zoneout = probability("zoneout", self.zoneout)


class QrnnBody(Baseline, QrnnOptions):
    """A quasi-recurrent network as a body.

    Its state is the left context of every convolution, and the last memories c (layers, B, H).

    >>> body = QrnnBody(3, hidden_size=8)
    >>> y, (contexts, c) = body(torch.randn(10, 2, 3))
    >>> tuple(y.shape), tuple(c.shape)
    ((10, 2, 8), (2, 2, 8))
    """

    input_scale = 6.0  # as for a trellis
    output_size: int

    def build(self, where: dict[str, Any]) -> None:
        widths = [self.input_size] + [self.hidden_size] * (self.num_layers - 1)
        taps = [self.kernel_size if self.convolved == "all" or i == 0 else 1 for i in range(self.num_layers)]
        self.layers = nn.ModuleList(
            causal_convolution(width, 3 * self.hidden_size, k, **where) for width, k in zip(widths, taps, strict=True)
        )

    def forward(
        self, x: Tensor, state: Any = None, *, lengths: Sequence[int] | Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Run x (T, B, C) from the state of an earlier call; return outputs (T, B, O) and the new state.

        With `lengths`, the state is the one at each sequence's own end, and outputs beyond it are zero.
        """
        x = without_padding(x, lengths)
        contexts, memories = ([None] * self.num_layers,) * 2 if state is None else state
        after: list[Tensor] = []
        last: list[Tensor] = []
        for layer, context, memory in zip(self.layers, contexts, memories, strict=True):
            if last:
                x = F.dropout(x, self.dropout, self.training)
            pre, new = layer(x, context, lengths)
            z, update, o = pre.to(layer.bias.dtype).chunk(3, -1)  # autocast must not round the memory at every step
            update = self._zoned_out(update.sigmoid())
            c = scan(1 - update, update * z.tanh(), memory)
            x = o.sigmoid() * c
            after.append(new)
            last.append(state_at_ends(c, lengths))
        return self.project(x, lengths), (tuple(after), torch.stack(last))

    def _zoned_out(self, update: Tensor) -> Tensor:
        if not self.zoneout:
            return update
        if not self.training:
            return update * (1 - self.zoneout)
        return update * torch.empty_like(update).bernoulli_(1 - self.zoneout)
