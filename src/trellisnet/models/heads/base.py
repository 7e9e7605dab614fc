"""The interface of the output heads."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from trellisnet.core.matmul import linear
from trellisnet.core.precision import dtypes_for, without_autocast

IGNORED = -100  # targets of this value are ignored, as in torch's own losses


class Head(nn.Module, ABC):
    """Maps features (..., D) to log-probabilities (..., V), or to the log-likelihood of targets (...) only.

    Features have at least one dimension before the channels. A head that draws one dropout mask per sequence reads them
    as (T, B, D).

    A subclass defines `_nll` and `_log_prob`. Both are called outside autocast, with features in the dtype of the
    computation.
    """

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of the targets that are not `IGNORED`."""
        counted = (targets != IGNORED).sum().clamp(min=1)
        return self.nll(hidden, targets).sum() / counted

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihood of every target, in at least single precision; zero for `IGNORED` targets."""
        if hidden.shape[:-1] != targets.shape:
            expected = tuple(hidden.shape[:-1])
            raise ValueError(f"targets must have the shape {expected} of the features, got {tuple(targets.shape)}")
        ignored = targets == IGNORED
        with without_autocast(hidden.device.type):
            nll = self._nll(to_compute(hidden), targets.masked_fill(ignored, 0))
        return nll.masked_fill(ignored, 0)

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Log-probabilities (..., V) of all tokens, in at least single precision."""
        with without_autocast(hidden.device.type):
            return self._log_prob(to_compute(hidden))

    @abstractmethod
    def _nll(self, hidden: Tensor, targets: Tensor) -> Tensor: ...

    @abstractmethod
    def _log_prob(self, hidden: Tensor) -> Tensor: ...


def to_compute(hidden: Tensor) -> Tensor:
    """Convert features to the dtype of the computation: autocast's if it is on, and never half precision on a CPU."""
    return hidden.to(dtypes_for(hidden, hidden.dtype)[0])


def affine(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear` in the dtype of `hidden`; the weights are converted."""
    return linear(hidden, weight.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype))


def at_least_single(tensor: Tensor) -> Tensor:
    """Convert half precision to single, because sums of exponentials need it."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def new_token_vectors(vocab_size: int, size: int, device: torch.device, dtype: torch.dtype) -> nn.Parameter:
    """Return token vectors (vocab_size, size), initialised like the paper's embeddings."""
    return nn.Parameter(torch.empty(vocab_size, size, device=device, dtype=dtype).uniform_(-0.1, 0.1))
