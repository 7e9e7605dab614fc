"""The interface of all heads."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.core.precision import dtypes_for, without_autocast

IGNORED = -100  # a target that counts nowhere, as in torch's own losses


class Head(nn.Module, ABC):
    """From features (..., D) to log-probabilities (..., V), or only to those of the targets (...).

    At least one dimension stands before the channels.

    A subclass defines `_nll` and `_log_prob`, which are called without autocast and with features in the dtype to
    compute in. Where a mask is drawn once a sequence, features are understood as (T, B, D).
    """

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of the targets that are not `IGNORED`."""
        counted = (targets != IGNORED).sum().clamp(min=1)
        return self.nll(hidden, targets).sum() / counted

    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihood of every target, in at least single precision; zero where it is `IGNORED`."""
        if hidden.shape[:-1] != targets.shape:
            expected = tuple(hidden.shape[:-1])
            raise ValueError(f"targets must have the shape {expected} of the features, got {tuple(targets.shape)}")
        ignored = targets == IGNORED
        with without_autocast(hidden.device.type):
            nll = self._nll(to_compute(hidden), targets.masked_fill(ignored, 0))
        return nll.masked_fill(ignored, 0)

    def log_prob(self, hidden: Tensor) -> Tensor:
        """Log-probabilities of all words, in at least single precision."""
        with without_autocast(hidden.device.type):
            return self._log_prob(to_compute(hidden))

    @abstractmethod
    def _nll(self, hidden: Tensor, targets: Tensor) -> Tensor: ...

    @abstractmethod
    def _log_prob(self, hidden: Tensor) -> Tensor: ...


def to_compute(hidden: Tensor) -> Tensor:
    """Features in the dtype to compute in: autocast's where it is on, and on a CPU never half precision."""
    return hidden.to(dtypes_for(hidden, hidden.dtype)[0])


def affine(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear` in the dtype of `hidden`, whatever that of the weights."""
    return F.linear(hidden, weight.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype))


def at_least_single(tensor: Tensor) -> Tensor:
    """Sums of exponentials want more than half precision."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def new_word_vectors(vocab_size: int, size: int, device: torch.device, dtype: torch.dtype) -> nn.Parameter:
    """Vectors of words that start as the paper's embeddings do."""
    return nn.Parameter(torch.empty(vocab_size, size, device=device, dtype=dtype).uniform_(-0.1, 0.1))
