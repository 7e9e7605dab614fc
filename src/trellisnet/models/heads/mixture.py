"""A mixture of softmaxes, and a mixture of contexts (Yang, Dai, Salakhutdinov, Cohen, ICLR 2018)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.core.checks import positive_int, probability
from trellisnet.models.dropout import channel_mask, masked
from trellisnet.models.heads.base import Head, affine, at_least_single
from trellisnet.models.heads.chunked import linear_nll


class MixtureHead(Head):
    """A weighted sum of K softmaxes over the vocabulary, computed in log space. Each softmax is called an expert.

    Args:
        features: number D of input channels.
        weight: (V, E), one vector per token; pass the embedding's weight to tie the two.
        experts: number K of softmaxes.
        latent_dropout: dropout of the experts' vectors, one mask per sequence.
    """

    def __init__(self, features: int, weight: nn.Parameter, experts: int, latent_dropout: float = 0.0) -> None:
        super().__init__()
        self.experts = positive_int("experts", experts)
        self.latent_dropout = probability("latent_dropout", latent_dropout)
        where: dict[str, Any] = {"device": weight.device, "dtype": weight.dtype}
        self.prior = nn.Linear(features, experts, **where)
        self.latent = nn.Linear(features, experts * weight.shape[1], **where)
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros_like(weight[:, 0]))

    def _mixture(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-weights of the experts (..., K) and their vectors (..., K, E)."""
        log_prior = F.log_softmax(at_least_single(affine(hidden, self.prior.weight, self.prior.bias)), dim=-1)
        latent = affine(hidden, self.latent.weight, self.latent.bias).tanh()
        if self.training:
            latent = masked(latent, channel_mask(latent, self.latent_dropout))
        return log_prior, latent.unflatten(-1, (self.experts, -1))

    def _nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        # the likelihood needs each softmax at the target only, so the whole (N, V) matrix of an expert never exists
        log_prior, latent = self._mixture(hidden)
        repeated = targets.unsqueeze(-1).expand(log_prior.shape)
        nll = linear_nll(latent.flatten(0, -2), self.weight, self.bias, repeated.flatten())
        return -torch.logsumexp(log_prior - nll.view_as(log_prior), dim=-1)

    def _log_prob(self, hidden: Tensor) -> Tensor:
        log_prior, latent = self._mixture(hidden)
        total: Tensor | None = None
        for expert in range(self.experts):  # one (..., V) at a time, not (..., K, V)
            logits = at_least_single(affine(latent[..., expert, :], self.weight, self.bias))
            share = F.log_softmax(logits, dim=-1) + log_prior[..., expert, None]
            total = share if total is None else torch.logaddexp(total, share)
        assert total is not None
        return total


class ContextHead(MixtureHead):
    """One softmax over the vocabulary, of the weighted sum of K vectors. They are those of the experts of a mixture.

    The arguments are those of `MixtureHead`.
    """

    def _context(self, hidden: Tensor) -> Tensor:
        """Return the weighted sum of the experts' vectors (..., E)."""
        log_prior, latent = self._mixture(hidden)
        return (log_prior.exp().to(latent.dtype).unsqueeze(-2) @ latent).squeeze(-2)

    def _nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        context = self._context(hidden).flatten(0, -2)
        return linear_nll(context, self.weight, self.bias, targets.flatten()).view_as(targets)

    def _log_prob(self, hidden: Tensor) -> Tensor:
        logits = at_least_single(affine(self._context(hidden), self.weight, self.bias))
        return F.log_softmax(logits, dim=-1)
