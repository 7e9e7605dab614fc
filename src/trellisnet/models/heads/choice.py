"""A head by its name."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from trellisnet.core.checks import one_of
from trellisnet.models.heads.adaptive import AdaptiveHead, ClusterHead
from trellisnet.models.heads.base import Head, new_word_vectors
from trellisnet.models.heads.mixture import MixtureHead
from trellisnet.models.heads.softmax import SoftmaxHead

OPTIONS = {  # a head's name, and which options are its own
    "softmax": ("tied",),
    "mos": ("tied", "experts", "latent_dropout"),
    "adaptive": ("cutoffs",),
    "cluster": ("tied", "cutoffs"),
}


def make_head(
    name: str,
    features: int,
    embedding: nn.Parameter,
    *,
    tied: bool | None = None,
    experts: int | None = None,
    latent_dropout: float | None = None,
    cutoffs: Sequence[int] | None = None,
) -> Head:
    """The head called `name` on `features` channels, for the words of `embedding` (V, E).

    Args:
        name: "softmax", "mos", "adaptive" or "cluster".
        features: channels that the head reads.
        embedding: (V, E), for the heads that can share it.
        tied: use the embedding as the words' vectors; default for every head that has them.
        experts: softmaxes of "mos"; default 15, as in the paper.
        latent_dropout: of "mos"; default 0.
        cutoffs: of "adaptive" and "cluster".
    """
    one_of("head", name, OPTIONS)
    given = {"tied": tied, "experts": experts, "latent_dropout": latent_dropout, "cutoffs": cutoffs}
    for option, value in given.items():
        if value is not None and value is not False and option not in OPTIONS[name]:
            owners = " or ".join(repr(head) for head, own in OPTIONS.items() if option in own)
            raise ValueError(f"{option} belongs to head {owners}: got {option}={value!r} with head={name!r}")
    vocab_size, embedding_size = embedding.shape
    if name == "adaptive":
        return AdaptiveHead(features, vocab_size, cutoffs, embedding.device, embedding.dtype)
    tied = tied is None or tied
    if tied and name != "mos" and features != embedding_size:
        raise ValueError(
            f"tied embeddings need output_size = embedding_size = {embedding_size}, got output_size = {features}; "
            "choose equal sizes or tied=False"
        )
    size = embedding_size if name == "mos" else features
    weight = embedding if tied else new_word_vectors(vocab_size, size, embedding.device, embedding.dtype)
    if name == "mos":
        experts = 15 if experts is None else experts
        return MixtureHead(features, weight, experts, latent_dropout or 0.0)
    return ClusterHead(weight, cutoffs) if name == "cluster" else SoftmaxHead(weight)
