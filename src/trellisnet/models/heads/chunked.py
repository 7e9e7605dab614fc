"""The negative log-likelihood of a linear softmax without the (N, V) matrix that it is usually read from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trellisnet.models.heads.base import affine, at_least_single

CHUNK = 2**24  # logits that exist at a time: 64 MB in single precision


def linear_nll(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """-log softmax(hidden weight^T + bias) at the targets: (N, D), (V, D), (V), (N) to (N).

    Only `CHUNK` logits exist at a time. The backward pass computes them again, which makes three matrix products
    into four and spares everything that would have to be kept between the passes.
    """
    weight, bias = weight.to(hidden.dtype), bias.to(hidden.dtype)  # here and not in every chunk
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
            surplus = (
                at_least_single(affine(hidden[rows], weight, bias)).sub_(normaliser[rows, None]).exp_().mul_(scale)
            )
            surplus.scatter_add_(1, targets[rows, None], -scale)
            surplus = surplus.to(hidden.dtype)
            grad_bias += surplus.sum(0)
            torch.mm(surplus, weight, out=grad_hidden[rows])
            grad_weight.addmm_(surplus.t(), hidden[rows])
        return grad_hidden, grad_weight, grad_bias, None
