"""The cross-entropy of a linear softmax with label smoothing, with its gradient in the same pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trellisnet.core.matmul import addmm_, mm
from trellisnet.models.heads.base import at_least_single

CHUNK = 2**20  # maximum number of logits at a time: 4 MB in single precision stay in the cache of a core


def smoothed_loss(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Mean cross-entropy of softmax(hidden weight^T + bias): (N, D), (V, D), (V), (N) to a scalar; 0 if N is 0.

    The share `smoothing` of each target is spread over all V tokens. The gradient of a mean is known in the forward
    pass, up to one factor. It is computed there, while a chunk of the logits is in the cache: three matrix products, as
    autograd takes, but no matrix (N, V) is written to memory and read again.
    """
    loss: Tensor = _SmoothedLoss.apply(hidden, weight, bias, targets, smoothing)  # type: ignore[no-untyped-call]
    return loss


class _SmoothedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        rows, size = max(1, CHUNK // len(weight)), len(weight)
        grad_hidden, grad_weight, grad_bias = (torch.zeros_like(tensor) for tensor in (hidden, weight, bias))
        total = at_least_single(hidden.new_zeros(()))
        for start in range(0, len(hidden), rows):
            part, chosen = hidden[start : start + rows], targets[start : start + rows, None]
            log_prob = at_least_single(mm(part, weight.t()).add_(bias)).log_softmax(1)
            total -= (1 - smoothing) * log_prob.gather(1, chosen).sum()
            if smoothing:
                total -= smoothing / size * log_prob.sum()
            # the gradient of the logits, times N
            grad = log_prob.exp_().sub_(smoothing / size)
            grad.scatter_add_(1, chosen, grad.new_full(chosen.shape, smoothing - 1))
            grad = grad.to(hidden.dtype)
            mm(grad, weight, grad_hidden[start : start + rows])
            addmm_(grad_weight, grad.t(), part)
            grad_bias += grad.sum(0)
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        ctx.count = max(1, len(hidden))
        return total.div_(ctx.count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scale = grad / ctx.count
        return *(found * scale for found in ctx.saved_tensors), None, None
