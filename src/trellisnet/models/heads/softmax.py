"""The plain softmax head."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.core.precision import without_autocast
from trellisnet.models.heads.base import Head, affine, at_least_single, to_compute
from trellisnet.models.heads.smoothed import smoothed_loss


class SoftmaxHead(Head):
    """log softmax(weight h + bias) over the whole vocabulary.

    Args:
        weight: (V, D), one vector per token; pass the embedding's weight to tie the two.
        features: number of channels of h, if a linear map makes D channels of them first.
    """

    def __init__(self, weight: nn.Parameter, features: int | None = None) -> None:
        super().__init__()
        self.map: nn.Linear | None = None
        if features is not None:
            self.map = nn.Linear(features, weight.shape[1], bias=False, device=weight.device, dtype=weight.dtype)
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros_like(weight[:, 0]))

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits (..., V) of features (..., D)."""
        return at_least_single(affine(self._mapped(hidden), self.weight, self.bias))

    def smoothed_loss(self, hidden: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        """Mean cross-entropy of targets (N), none of them ignored, with label smoothing, from features (N, D)."""
        with without_autocast(hidden.device.type):
            hidden = self._mapped(to_compute(hidden))
            weight, bias = self.weight.to(hidden.dtype), self.bias.to(hidden.dtype)
            return smoothed_loss(hidden, weight, bias, targets, smoothing)

    def _mapped(self, hidden: Tensor) -> Tensor:
        return hidden if self.map is None else affine(hidden, self.map.weight, None)

    def _nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        nll = F.cross_entropy(self.logits(hidden).flatten(0, -2), targets.flatten(), reduction="none")
        return nll.view_as(targets)

    def _log_prob(self, hidden: Tensor) -> Tensor:
        return F.log_softmax(self.logits(hidden), dim=-1)
