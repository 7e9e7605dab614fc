"""The cells of `nn.RNN`, which have no memory."""

from __future__ import annotations

import torch
from torch import Tensor

from trellisnet.core.cells.base import InPlaceCell, Views

_tanh_backward = torch.ops.aten.tanh_backward.grad_input
_threshold_backward = torch.ops.aten.threshold_backward.grad_input


class TanhCell(InPlaceCell):
    """The cell of `nn.RNN`: h = tanh(pre)."""

    gates, has_memory = 1, False

    def __call__(self, pre: Tensor, memory: Tensor | None) -> tuple[Tensor, None]:
        return pre.squeeze(-2).tanh(), None

    def activate_(self, views: Views) -> None:
        views[0].tanh_()

    def expose_(self, views: Views, memory_out: Tensor | None, hidden_out: Tensor) -> None:
        hidden_out.copy_(views[0])

    def expose_backward_(self, views, memory_out, grad_hidden, grad_memory, scratch):  # type: ignore[no-untyped-def]
        _tanh_backward(grad_hidden, views[0], grad_input=views[0])


class ReluCell(InPlaceCell):
    """The cell of `nn.RNN(nonlinearity="relu")`: h = relu(pre)."""

    gates, has_memory = 1, False

    def __call__(self, pre: Tensor, memory: Tensor | None) -> tuple[Tensor, None]:
        return pre.squeeze(-2).relu(), None

    def activate_(self, views: Views) -> None:
        views[0].relu_()

    def expose_(self, views: Views, memory_out: Tensor | None, hidden_out: Tensor) -> None:
        hidden_out.copy_(views[0])

    def expose_backward_(self, views, memory_out, grad_hidden, grad_memory, scratch):  # type: ignore[no-untyped-def]
        _threshold_backward(grad_hidden, views[0], 0, grad_input=views[0])
