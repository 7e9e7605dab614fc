"""Build a head by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from trellisnet.core.checks import one_of
from trellisnet.models.heads.adaptive import AdaptiveHead, ClusterHead
from trellisnet.models.heads.base import Head, new_token_vectors
from trellisnet.models.heads.mixture import ContextHead, MixtureHead
from trellisnet.models.heads.softmax import SoftmaxHead

OPTIONS = {  # the options that each head accepts
    "softmax": ("tied", "read_all"),
    "mos": ("tied", "experts", "latent_dropout"),
    "moc": ("tied", "experts", "latent_dropout"),
    "adaptive": ("cutoffs",),
    "cluster": ("tied", "cutoffs"),
}


def make_head(
    name: str,
    features: int,
    embedding: nn.Parameter,
    *,
    tied: bool | None = None,
    read_all: bool | None = None,
    experts: int | None = None,
    latent_dropout: float | None = None,
    cutoffs: Sequence[int] | None = None,
) -> Head:
    """Build an output head by name.

    Args:
        name: "softmax", "mos", "moc", "adaptive" or "cluster".
        features: number of channels that the head reads.
        embedding: (V, E), the token vectors of the embedding, for heads that can share them.
        tied: use the embedding's vectors in the head; default True for all heads but "adaptive".
        read_all: a tied "softmax" makes the channels of the embedding of all features by a linear map; default False.
        experts: number of softmaxes of "mos", or of contexts of "moc"; default 15, as in the paper.
        latent_dropout: dropout of the experts' vectors of "mos" and "moc"; default 0.
        cutoffs: first token ids of the clusters of "adaptive" and "cluster".

    Raises:
        ValueError: there is no such head, an option belongs to another head, or tied sizes differ.
    """
    one_of("head", name, OPTIONS)
    given: dict[str, Any] = {"tied": tied, "experts": experts, "latent_dropout": latent_dropout, "cutoffs": cutoffs}
    given |= {"read_all": read_all or None}
    for option, value in given.items():
        if value is not None and (option, value) != ("tied", False) and option not in OPTIONS[name]:
            owners = " or ".join(repr(head) for head, own in OPTIONS.items() if option in own)
            raise ValueError(f"{option} belongs to head {owners}: got {option}={value!r} with head={name!r}")
    vocab_size, embedding_size = embedding.shape
    if name == "adaptive":
        return AdaptiveHead(features, vocab_size, cutoffs, embedding.device, embedding.dtype)
    tied = tied is None or tied
    mixture = {"mos": MixtureHead, "moc": ContextHead}.get(name)
    if read_all and not tied:
        raise ValueError("read_all belongs to tied heads: an untied one reads all features anyway")
    if tied and mixture is None and not read_all and features != embedding_size:
        raise ValueError(
            f"tied embeddings need output_size = embedding_size = {embedding_size}, got output_size = {features}; "
            "choose equal sizes, read_all=True or tied=False"
        )
    size = features if mixture is None else embedding_size
    weight = embedding if tied else new_token_vectors(vocab_size, size, embedding.device, embedding.dtype)
    if mixture is not None:
        experts = 15 if experts is None else experts
        return mixture(features, weight, experts, latent_dropout or 0.0)
    return ClusterHead(weight, cutoffs) if name == "cluster" else SoftmaxHead(weight, features if read_all else None)
