"""The negative log-likelihood of a linear softmax without the whole (N, V) matrix of logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trellisnet.models.heads.base import affine, at_least_single

CHUNK = 2**24  # maximum number of logits at a time: 64 MB in single precision


def linear_nll(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """-log softmax(hidden weight^T + bias) at the targets: (N, D), (V, D), (V), (N) to (N).

    At most `CHUNK` logits exist at a time. The backward pass recomputes them: that takes four matrix products instead
    of three, and no logits are stored between the passes.
    """
    weight, bias = weight.to(hidden.dtype), bias.to(hidden.dtype)  # once, not per chunk
    nll: Tensor = _LinearNLL.apply(hidden, weight, bias, targets)  # type: ignore[no-untyped-call]
    return nll


def _chunks(rows: int, columns: int) -> Iterator[slice]:
    size = max(1, CHUNK // columns)
    return (slice(start, start + size) for start in range(0, rows, size))


class _LinearNLL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        nll = at_least_single(hidden.new_empty(0)).new_empty(len(hidden))
        normaliser = torch.empty_like(nll)
        for rows in _chunks(len(hidden), len(weight)):
            logits = at_least_single(affine(hidden[rows], weight, bias))
            torch.logsumexp(logits, 1, out=normaliser[rows])
            torch.sub(normaliser[rows], logits.gather(1, targets[rows, None]).squeeze(1), out=nll[rows])
        ctx.save_for_backward(hidden, weight, bias, targets, normaliser)
        return nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        hidden, weight, bias, targets, normaliser = ctx.saved_tensors
        grad_hidden, grad_weight, grad_bias = (torch.zeros_like(tensor) for tensor in (hidden, weight, bias))
        for rows in _chunks(len(hidden), len(weight)):
            scale = grad[rows, None]
            # the gradient of the logits is softmax - onehot
            grad_logits = (
                at_least_single(affine(hidden[rows], weight, bias)).sub_(normaliser[rows, None]).exp_().mul_(scale)
            )
            grad_logits.scatter_add_(1, targets[rows, None], -scale)
            grad_logits = grad_logits.to(hidden.dtype)
            grad_bias += grad_logits.sum(0)
            torch.mm(grad_logits, weight, out=grad_hidden[rows])
            grad_weight.addmm_(grad_logits.t(), hidden[rows])
        return grad_hidden, grad_weight, grad_bias, None
