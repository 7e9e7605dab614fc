"""Heads for vocabularies of hundreds of thousands of tokens. Token ids must be sorted: the most frequent token is 0.

Both heads divide the vocabulary into a shortlist and clusters of increasingly rare tokens. The softmax of the shortlist
has one additional entry per cluster. The probability of a token in a cluster is that of the cluster times that of the
token within it. So a frequent target costs a small softmax, and the softmax of a cluster is computed only for targets
in that cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from trellisnet.core.checks import positive_ints
from trellisnet.models.heads.base import Head, affine, at_least_single
from trellisnet.models.heads.chunked import linear_nll


class AdaptiveHead(Head):
    """torch's adaptive softmax (Grave et al., ICML 2017): the rarer a cluster, the smaller its own token vectors."""

    def __init__(
        self,
        features: int,
        vocab_size: int,
        cutoffs: Sequence[int] | None = None,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        cutoffs = check_cutoffs(cutoffs, vocab_size)
        # the vectors of cluster i have features / div_value^i channels, which must be at least one
        div_value = min(4.0, 0.999 * features ** (1 / len(cutoffs)))
        self.softmax = _AdaptiveSoftmax(
            features, vocab_size, cutoffs, div_value, head_bias=True, device=device, dtype=dtype
        )

    def _nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        return -self._run(hidden, targets.flatten()).view_as(targets)

    def _log_prob(self, hidden: Tensor) -> Tensor:
        return self._run(hidden, None).view(*hidden.shape[:-1], -1)

    def _run(self, hidden: Tensor, targets: Tensor | None) -> Tensor:
        parameters = {name: parameter.to(hidden.dtype) for name, parameter in self.softmax.named_parameters()}
        return at_least_single(functional_call(self.softmax, parameters, (hidden.flatten(0, -2), targets)))


class _AdaptiveSoftmax(nn.AdaptiveLogSoftmaxWithLoss):
    """torch's module with one `forward` for both of its results, because `functional_call` calls `forward` only."""

    def forward(self, hidden: Tensor, targets: Tensor | None) -> Tensor:  # type: ignore[override]
        """Return log-probabilities of the targets (N), or without targets of all tokens (N, V)."""
        return self.log_prob(hidden) if targets is None else super().forward(hidden, targets).output


class ClusterHead(Head):
    """A softmax with clusters in which all token vectors have full size, so that they can be the embedding's own.

    Besides the token vectors it has one vector per cluster, the cluster's entry in the softmax of the shortlist
    (`tombstones`). The whole (N, V) matrix of logits never exists, only one chunk of it at a time.

    Args:
        weight: (V, D), one vector per token; pass the embedding's weight to tie the two.
        cutoffs: first token id of each cluster; default `default_cutoffs`.
    """

    def __init__(self, weight: nn.Parameter, cutoffs: Sequence[int] | None = None) -> None:
        super().__init__()
        self.cutoffs = check_cutoffs(cutoffs, len(weight))
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros_like(weight[:, 0]))
        clusters = len(self.cutoffs)
        self.tombstones = nn.Parameter(torch.empty_like(weight[:clusters]).uniform_(-0.1, 0.1))
        self.tombstone_bias = nn.Parameter(torch.zeros_like(weight[:clusters, 0]))

    def _softmaxes(self) -> list[tuple[Tensor, Tensor]]:
        """Return weight and bias of the softmax of the shortlist with its tombstones, and of each cluster."""
        edges = [0, *self.cutoffs, len(self.weight)]
        sizes = [stop - start for start, stop in pairwise(edges)]
        # one split instead of slices: the backward pass then writes one gradient of the whole weight, not one per slice
        groups = list(zip(self.weight.split(sizes), self.bias.split(sizes), strict=True))
        shortlist = torch.cat([groups[0][0], self.tombstones]), torch.cat([groups[0][1], self.tombstone_bias])
        return [shortlist, *groups[1:]]

    def _nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        shape, hidden, targets = targets.shape, hidden.flatten(0, -2), targets.flatten()
        cluster = torch.bucketize(targets, torch.tensor(self.cutoffs, device=targets.device), right=True)
        (weight, bias), *clusters = self._softmaxes()
        entries = torch.where(cluster == 0, targets, self.cutoffs[0] + cluster - 1)
        nll = linear_nll(hidden, weight, bias, entries)
        for i, (weight, bias) in enumerate(clusters):
            rows = (cluster == i + 1).nonzero().squeeze(1)
            within = linear_nll(hidden[rows], weight, bias, targets[rows] - self.cutoffs[i])
            nll = nll.index_add(0, rows, within)
        return nll.view(shape)

    def _log_prob(self, hidden: Tensor) -> Tensor:
        (weight, bias), *clusters = self._softmaxes()
        entries = F.log_softmax(at_least_single(affine(hidden, weight, bias)), dim=-1)
        shortlist, tombstones = entries.split([self.cutoffs[0], len(clusters)], dim=-1)
        log_probs = [shortlist]
        for i, (weight, bias) in enumerate(clusters):
            within = F.log_softmax(at_least_single(affine(hidden, weight, bias)), dim=-1)
            log_probs.append(within + tombstones[..., i, None])
        return torch.cat(log_probs, dim=-1)


def default_cutoffs(vocab_size: int) -> tuple[int, ...]:
    """Return cutoffs at 7.5 %, 15 % and 75 % of the vocabulary.

    >>> default_cutoffs(267_735)
    (20080, 40160, 200801)
    """
    shares = {max(1, vocab_size * share // 40) for share in (3, 6, 30)}
    return tuple(sorted(shares))


def check_cutoffs(cutoffs: Sequence[int] | None, vocab_size: int) -> tuple[int, ...]:
    """Return the cutoffs as a tuple; None: the default ones.

    Raises:
        ValueError: they do not rise, or leave no tokens for the last cluster.
    """
    chosen = default_cutoffs(vocab_size) if cutoffs is None else positive_ints("cutoffs", cutoffs)
    if list(chosen) != sorted(set(chosen)) or chosen[-1] >= vocab_size:
        raise ValueError(f"cutoffs must rise and stay below vocab_size = {vocab_size}, got {list(chosen)}")
    return chosen
