"""The cell of recurrent highway networks with coupled gates (Zilly et al., ICML 2017), as a cell of a trellis."""

from __future__ import annotations

from torch import Tensor

from trellisnet.core.cells.base import AffineCell, Views


class HighwayCell(AffineCell):
    """The highway cell, with ordinary operations. Gates: candidate, transform.

    c' = t tanh(g) + (1 - t) c, with t = sigmoid(transform) and the candidate g. The memory is the hidden state before
    dropout.
    """

    gates = 2
    weight_scale, gate_biases = 2.0, (0.0, -1.0)  # as the coupled cell, whose forget gate is 1 - t

    def activate(self, pre: Tensor) -> Views:
        return pre[..., 0, :].tanh(), pre[..., 1, :].sigmoid()

    def affine(self, gates: Views) -> tuple[Tensor, Tensor]:
        candidate, transform = gates
        return 1 - transform, transform * candidate

    def expose(self, gates: Views, memory: Tensor) -> Tensor:
        return memory
