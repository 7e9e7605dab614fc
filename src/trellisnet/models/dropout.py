"""Dropout before and after the body. For dropout inside a trellis, see `TrellisNet`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def channel_mask(x: Tensor, probability: float) -> Tensor | None:
    """Draw a mask of variational dropout for (T, ..., C): one mask per sequence, the same at every step.

    Returns:
        (1, ..., C), scaled so that the mean is kept; None if the probability is 0.
    """
    if not probability:
        return None
    kept = 1 - probability
    return torch.empty_like(x[:1]).bernoulli_(kept).div_(kept)


def masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """Multiply `x` by a mask; None: return `x`."""
    return x if mask is None else x * mask


def embed(ids: Tensor, weight: Tensor, token_dropout: float = 0.0) -> Tensor:
    """Return the vectors (..., E) of token ids; a dropped token of the vocabulary is zero wherever it occurs."""
    vectors = F.embedding(ids, weight)
    if not token_dropout:
        return vectors
    kept = 1 - token_dropout
    mask = weight.new_empty(len(weight), 1).bernoulli_(kept).div_(kept)  # one entry per token of the vocabulary
    return vectors * F.embedding(ids, mask)
