"""The options of the models, declared once: the models, the recipes and `--help` read them here.

This module does not import torch, so that `--help` is fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from trellisnet.core.checks import (
    boolean,
    loss_weight,
    one_of,
    positive,
    positive_int,
    positive_ints,
    probability,
    quantile_levels,
    unknown_option,
)

HISTORIES = ("carry", "repackage", "discard")
DISTRIBUTIONS = ("normal", "student-t")
READOUTS = ("last", "mean", "max", "attention")


@dataclass(eq=False, repr=False, kw_only=True)
class ModelOptions:
    """The options of every model beside those of its body.

    Args:
        input_dropout: dropout of channels before the body, one mask per sequence.
        output_dropout: dropout of channels after the body, one mask per sequence.
        aux_weight: weight of the sum of the auxiliary losses, one per inner layer that the body returns; default 0.05.
    """

    input_dropout: float = 0.0
    output_dropout: float = 0.0
    aux_weight: float | None = None

    def __post_init__(self) -> None:
        self.input_dropout = probability("input_dropout", self.input_dropout)
        self.output_dropout = probability("output_dropout", self.output_dropout)
        self.aux_weight = None if self.aux_weight is None else loss_weight("aux_weight", self.aux_weight)


@dataclass(eq=False, repr=False, kw_only=True)
class SequenceOptions(ModelOptions):
    """The options of a model of sequences beside those of its body: those of `ModelOptions`, and

    Args:
        bidirectional: a second net of the same kind reads the sequences from their ends to their starts, and the
            model reads the outputs of both. For whole sequences: a call neither takes nor gives a state.
        reconstruct_steps: in training, a decoder also reconstructs the n inputs before a random step of each sequence
            from the body's output at that step: the auxiliary loss of r-LSTMs (Trinh et al., 2018); default none. Not
            with `bidirectional`, where every output has seen them.
        reconstruct_weight: weight of this loss; default 1.
        reconstruct_size: width of the decoder, an LSTM of two layers; default 128.
        quantiles: of a regressor: predict these quantiles of every value instead of its mean, such as [0.1, 0.5, 0.9];
            the loss is the pinball loss.
        distribution: of a regressor: predict a distribution of every value, "normal" or "student-t"; the loss is the
            negative log-likelihood.
        readout: of a model with one answer per sequence: what it reads of the body's output: "last", the last step, of
            which a trellis computes only the cells that it needs; "mean" or "max" over the steps; or "attention", a
            mean with learned weights.
    """

    bidirectional: bool = False
    reconstruct_steps: int | None = None
    reconstruct_weight: float | None = None
    reconstruct_size: int | None = None
    quantiles: Sequence[float] | None = None
    distribution: str | None = None
    readout: str = "last"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.readout = one_of("readout", self.readout, READOUTS)
        if self.quantiles is not None:
            self.quantiles = quantile_levels("quantiles", self.quantiles)
        if self.distribution is not None:
            one_of("distribution", self.distribution, DISTRIBUTIONS)
            if self.quantiles is not None:
                got = f"{list(self.quantiles)} and {self.distribution!r}"
                raise ValueError(f"quantiles and distribution cannot both be chosen: got {got}")
        self.bidirectional = boolean("bidirectional", self.bidirectional)
        if self.bidirectional and self.reconstruct_steps is not None:
            raise ValueError(f"reconstruct_steps needs bidirectional=False: got {self.reconstruct_steps} and True")
        for name in ("reconstruct_weight", "reconstruct_size"):
            if self.reconstruct_steps is None and (value := getattr(self, name)) is not None:
                raise ValueError(f"{name} needs reconstruct_steps: got {name}={value} and reconstruct_steps=None")
        if self.reconstruct_steps is not None:
            self.reconstruct_steps = positive_int("reconstruct_steps", self.reconstruct_steps)
            self.reconstruct_weight = 1.0 if self.reconstruct_weight is None else self.reconstruct_weight
            self.reconstruct_weight = positive("reconstruct_weight", self.reconstruct_weight)
            if self.reconstruct_size is not None:
                self.reconstruct_size = positive_int("reconstruct_size", self.reconstruct_size)


@dataclass(eq=False, repr=False, kw_only=True)
class LanguageOptions(ModelOptions):
    """The options of a language model beside those of its body.

    Args:
        head: "softmax"; "mos", a mixture of softmaxes; "moc", a mixture of contexts; "adaptive", torch's adaptive
            softmax; or "cluster", an adaptive softmax on the embedding's own vectors. The last two need token ids
            sorted by frequency.
        tied: the head uses the embedding's vectors; default True for every head that has one vector per token.
        read_all: a tied head "softmax" reads all channels of the body, through a linear map to those of the embedding;
            by default it reads the last ones, which are as many as those of the embedding.
        experts: number of softmaxes of the head "mos", or of contexts of the head "moc"; default 15.
        latent_dropout: dropout of the experts' vectors of the heads "mos" and "moc".
        cutoffs: first token ids of the clusters of rarer tokens, for the heads "adaptive" and "cluster".
        embedding_dropout: dropout of tokens of the vocabulary, at all their places in a batch.
        alpha: weight in the loss of the mean square of the output.
        beta: weight in the loss of the mean square of the output's change from step to step.
        history: how training continues from one window of a text to the next. "carry": from the exact state.
            "repackage": every layer starts from the final layer's last step, as in the paper; with other bodies the
            same as "carry". "discard": every window starts without a state, and its first `horizon` steps are context
            only: their targets are not counted, and only the cells that the other steps need are computed. Evaluation
            always uses "carry".
        horizon: number of context steps of the history "discard".
    """

    head: str = "softmax"
    tied: bool | None = None
    read_all: bool = False
    experts: int | None = None
    latent_dropout: float | None = None
    cutoffs: Sequence[int] | None = None
    embedding_dropout: float = 0.0
    alpha: float = 0.0
    beta: float = 0.0
    history: str = "carry"
    horizon: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tied = None if self.tied is None else boolean("tied", self.tied)
        self.read_all = boolean("read_all", self.read_all)
        self.cutoffs = None if self.cutoffs is None else positive_ints("cutoffs", self.cutoffs)
        if self.latent_dropout is not None:
            self.latent_dropout = probability("latent_dropout", self.latent_dropout)
        if self.experts is not None:
            self.experts = positive_int("experts", self.experts)
        self.embedding_dropout = probability("embedding_dropout", self.embedding_dropout)
        self.alpha, self.beta = loss_weight("alpha", self.alpha), loss_weight("beta", self.beta)
        self.history = one_of("history", self.history, HISTORIES)
        if (self.history == "discard") != (self.horizon is not None):
            got = f"history={self.history!r} and horizon={self.horizon}"
            raise ValueError(f"horizon belongs to history='discard': got {got}")
        self.horizon = None if self.horizon is None else positive_int("horizon", self.horizon)

    @property
    def reads_embedding(self) -> bool:
        """Whether the body's output must be as wide as the embedding, because the head uses the embedding's vectors."""
        return self.head in ("softmax", "cluster") and self.tied is not False and not self.read_all

    def head_options(self) -> dict[str, Any]:
        """Return the options of `make_head` by name."""
        return {name: getattr(self, name) for name in ("tied", "read_all", "experts", "latent_dropout", "cutoffs")}


@dataclass(eq=False, repr=False, kw_only=True)
class Seq2SeqOptions:
    """The options of a sequence-to-sequence model beside those of its body.

    Args:
        attention_heads: number of heads of the attention over the source; a divisor of the body's output size.
        encoder: another body for the encoder, with its options, for example {name: lstm, hidden_size: 128}; without
            `hidden_size` it is as wide as the decoder. Default: the decoder's body and options.
        bidirectional: the encoder also reads the source from its end, with a net of its own.
        label_smoothing: share of the target's probability that is spread over all tokens in the training loss.
        input_dropout: dropout of channels of the embeddings, one mask per sentence.
        output_dropout: dropout of channels after the upper decoder, one mask per sentence.
    """

    attention_heads: int = 1
    encoder: dict[str, Any] | None = None
    bidirectional: bool = True
    label_smoothing: float = 0.1
    input_dropout: float = 0.0
    output_dropout: float = 0.0

    def __post_init__(self) -> None:
        self.attention_heads = positive_int("attention_heads", self.attention_heads)
        if self.encoder is not None and (not isinstance(self.encoder, Mapping) or "name" not in self.encoder):
            what = "a mapping with the name of a body and its options"
            raise ValueError(f"encoder must be {what}, such as {{name: lstm}}, got {self.encoder!r}")
        self.encoder = None if self.encoder is None else dict(self.encoder)
        self.bidirectional = boolean("bidirectional", self.bidirectional)
        self.label_smoothing = probability("label_smoothing", self.label_smoothing)
        self.input_dropout = probability("input_dropout", self.input_dropout)
        self.output_dropout = probability("output_dropout", self.output_dropout)


def split_options(options: Mapping[str, Any], *kinds: type[Any]) -> list[dict[str, Any]]:
    """Sort options by the dataclass that declares them, one dictionary per dataclass.

    Raises:
        TypeError: no dataclass declares an option.
    """
    names = [{field.name for field in fields(kind)} for kind in kinds]
    known = set().union(*names)
    for option in options:
        if option not in known:
            hint = (
                "; sequences always come as (B, T, ...)" if option == "batch_first" else unknown_option(option, known)
            )
            raise TypeError(f"{option} is not an option of this model{hint}")
    return [{name: value for name, value in options.items() if name in own} for own in names]


def aux_weight_for(body: object, weight: float | None) -> float:
    """Return the weight of the sum of the auxiliary losses: default 0.05, and 0 for a body without `aux_every`.

    Raises:
        ValueError: a weight is given, but the body has no `aux_every`.
    """
    has_aux = getattr(body, "aux_every", None) is not None
    if weight is not None and not has_aux:
        raise ValueError(f"aux_weight needs aux_every: got aux_weight={weight} and aux_every=None")
    return (0.05 if weight is None else weight) if has_aux else 0.0
