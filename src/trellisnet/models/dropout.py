"""The dropouts of the paper's models outside the trellis itself; inside it, see `TrellisNet`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def channel_mask(x: Tensor, probability: float) -> Tensor | None:
    """What (T, ..., C) is multiplied with in variational dropout: a mask a sequence, the same at every step."""
    if not probability:
        return None
    kept = 1 - probability
    return torch.empty_like(x[:1]).bernoulli_(kept).div_(kept)


def masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """`x` under a mask, or as it is."""
    return x if mask is None else x * mask


def embed(ids: Tensor, weight: Tensor, word_dropout: float = 0.0) -> Tensor:
    """Vectors of words; with dropout, all occurrences of some words of the vocabulary are zero."""
    vectors = F.embedding(ids, weight)
    if not word_dropout:
        return vectors
    kept = 1 - word_dropout
    words = weight.new_empty(len(weight), 1).bernoulli_(kept).div_(kept)
    return vectors * F.embedding(ids, words)
