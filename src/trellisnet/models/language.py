"""TrellisLM: a language model on a trellis network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self, Unpack

from trellisnet.core.checks import non_negative, one_of, positive_int, probability
from trellisnet.core.state import AnyState, TrellisState
from trellisnet.core.trellis import TrellisNet
from trellisnet.models import authors
from trellisnet.models.dropout import channel_mask, embed, masked
from trellisnet.models.heads import IGNORED, make_head
from trellisnet.models.heads.base import at_least_single
from trellisnet.models.options import NetOptions, check_aux_weight, constructor_arguments
from trellisnet.models.text import Features, TextMethods
from trellisnet.vocabulary import FILE_NAME as VOCABULARY
from trellisnet.vocabulary import Vocabulary

HISTORIES = ("carry", "repackage", "discard")


@dataclass
class LMOutput:
    """What a call of a language model gives."""

    state: TrellisState | None  # to be passed to the call on the text that follows; cut from the graph
    loss: Tensor | None = None  # with targets: the mean over them, and what regularises in training
    parts: dict[str, Tensor] = field(default_factory=dict)  # what the loss is the sum of, cut from the graph
    log_prob: Tensor | None = None  # without targets: (B, T, V), of the next word at every step


class TrellisLM(TextMethods):
    """A language model: embedding, trellis network, output head.

    Args:
        vocab_size: number V of words.
        embedding_size: channels of a word's vector.
        hidden_size, num_layers: of the trellis. The paper's tables count `hidden_size` without the output channels;
            this does not.
        output_size: channels the head reads; default `embedding_size` where the two are tied by a softmax, or else
            `hidden_size`.
        head: "softmax"; "mos", a mixture of softmaxes; "adaptive", torch's adaptive softmax; or "cluster", an adaptive
            softmax on the embedding's own vectors. The last two want words sorted by frequency.
        tied: the head's word vectors are the embedding's own; default wherever a head has such vectors.
        experts, latent_dropout: of "mos": number of softmaxes, and dropout of their vectors.
        cutoffs: of "adaptive" and "cluster": where the clusters of rarer words begin.
        embedding_dropout: of whole words of the vocabulary, wherever they occur in a batch.
        input_dropout, output_dropout: of channels, one mask a sequence.
        aux_weight: weight of the sum of the auxiliary losses, one every `aux_every` layers; default 0.05.
        alpha, beta: weights of the mean squares of the output, and of its change from step to step, in the loss.
        history: how training goes on from one window of a text to the next. "carry": from exact left contexts.
            "repackage": every layer from the final layer's last step, as in the paper. "discard": each window starts
            anew, and its first `horizon` steps are context only: their targets do not count, and only the cells that
            the others need are computed. Evaluation always carries.
        horizon: of "discard".
        vocabulary: the words themselves, for methods that take text; saved with the model.
        net: further options of `TrellisNet`.

    >>> lm = TrellisLM(vocab_size=50, embedding_size=8, hidden_size=32, num_layers=4)
    >>> ids = torch.randint(50, (2, 21))
    >>> out = lm(ids[:, :-1], ids[:, 1:])
    >>> out.loss.backward()
    >>> out = lm(ids[:, :-1], ids[:, 1:], out.state)  # the text goes on
    >>> tuple(lm.log_prob(ids).shape)
    (2, 21, 50)
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        hidden_size: int,
        num_layers: int,
        output_size: int | None = None,
        head: str = "softmax",
        *,
        tied: bool | None = None,
        experts: int | None = None,
        latent_dropout: float | None = None,
        cutoffs: Sequence[int] | None = None,
        embedding_dropout: float = 0.0,
        input_dropout: float = 0.0,
        output_dropout: float = 0.0,
        aux_weight: float | None = None,
        alpha: float = 0.0,
        beta: float = 0.0,
        history: str = "carry",
        horizon: int | None = None,
        vocabulary: Vocabulary | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **net: Unpack[NetOptions],
    ) -> None:
        config = constructor_arguments(locals())
        del config["vocabulary"]  # has a file of its own
        super().__init__(config)
        self.vocab_size = positive_int("vocab_size", vocab_size, minimum=2)
        positive_int("embedding_size", embedding_size)
        self.embedding_dropout = probability("embedding_dropout", embedding_dropout)
        self.input_dropout = probability("input_dropout", input_dropout)
        self.output_dropout = probability("output_dropout", output_dropout)
        self.aux_weight = check_aux_weight(aux_weight, net)
        self.alpha, self.beta = non_negative("alpha", alpha), non_negative("beta", beta)
        self.history = one_of("history", history, HISTORIES)
        if (history == "discard") != (horizon is not None):
            raise ValueError(f"horizon belongs to history='discard': got history={history!r} and horizon={horizon}")
        self.horizon = 0 if horizon is None else positive_int("horizon", horizon)
        if output_size is None and head in ("softmax", "cluster") and tied is not False:
            output_size = embedding_size
            if embedding_size > hidden_size:
                raise ValueError(
                    f"hidden_size must be at least embedding_size = {embedding_size}, which is the output's size when "
                    f"the two are tied, got {hidden_size}; or choose tied=False"
                )
        self.net = TrellisNet(embedding_size, hidden_size, num_layers, output_size, device=device, dtype=dtype, **net)
        self.embedding = nn.Embedding(vocab_size, embedding_size, device=device, dtype=dtype)
        # the paper's bound is so narrow that gated cells hardly hear the words at first: docs/initialisation.md
        wide = self.net.init == "uniform" and self.net.cell.gates > 1
        bound = 6 / math.sqrt(embedding_size) if wide else 0.1
        nn.init.uniform_(self.embedding.weight, -bound, bound)
        self.head = make_head(
            head,
            self.net.output_size,
            self.embedding.weight,  # type: ignore[arg-type]  # a Parameter, which torch calls a Tensor
            tied=tied,
            experts=experts,
            latent_dropout=latent_dropout,
            cutoffs=cutoffs,
        )
        if vocabulary is not None and not isinstance(vocabulary, Vocabulary):
            raise TypeError(f"vocabulary must be a Vocabulary, got {type(vocabulary).__name__}")
        if vocabulary is not None and len(vocabulary) != vocab_size:
            raise ValueError(f"vocabulary must have vocab_size = {vocab_size} words, got {len(vocabulary)}")
        self.vocabulary = vocabulary

    def forward(
        self,
        ids: Tensor,
        targets: Tensor | None = None,
        state: AnyState | None = None,
        *,
        depth: int | None = None,
        history: str | None = None,
    ) -> LMOutput:
        """Read text, and compare it with what follows each word, or say what may follow.

        Args:
            ids: (B, T), numbers of words.
            targets: (B, T), the word that follows each; -100 counts nowhere, so that texts of unequal length can be
                padded on the right (the state is then that after the padding). Without targets, the result has
                log-probabilities.
            state: what the call on the text before returned.
            depth: number of layers; default `num_layers`.
            history: default in training that of the model, otherwise "carry". With "discard" the result is about the
                steps after the first `horizon` only.
        """
        ids = self._to_ids("ids", ids)
        history = (self.history if self.training else "carry") if history is None else history
        one_of("history", history, HISTORIES)
        tail = self._tail(ids, state) if history == "discard" else None
        with_aux = self.training and targets is not None and bool(self.net.aux_every and self.aux_weight)
        features = self.features(ids, state, tail=tail, depth=depth, aux=with_aux)
        after = features.state
        if after is not None:
            after = after.repackage() if history == "repackage" else after.detach()
        if targets is None:
            dropped = masked(features.output, self._output_mask(features.output))
            return LMOutput(after, log_prob=self.head.log_prob(dropped).transpose(0, 1))
        targets = self._to_ids("targets", targets, IGNORED)
        if targets.shape != ids.shape:
            raise ValueError(f"targets must have the shape of ids, {tuple(ids.shape)}, got {tuple(targets.shape)}")
        loss, parts = self._loss(features, targets.t()[-len(features.output) :])
        return LMOutput(after, loss, parts)

    def log_prob(self, ids: Tensor, state: AnyState | None = None) -> Tensor:
        """Log-probabilities of the word that follows each: (B, T) to (B, T, V). Without dropout only after `eval()`."""
        log_prob = self(ids, state=state, history="carry").log_prob
        assert isinstance(log_prob, Tensor)
        return log_prob

    def features(
        self,
        ids: Tensor,
        state: AnyState | None = None,
        *,
        lengths: Sequence[int] | Tensor | None = None,
        tail: int | None = None,
        depth: int | None = None,
        aux: bool = False,
    ) -> Features:
        """What the head reads of a text (B, T), time first; options as those of `TrellisNet`."""
        vectors = embed(ids.t(), self.embedding.weight, self.embedding_dropout if self.training else 0.0)  # (T, B, E)
        if self.training:
            vectors = masked(vectors, channel_mask(vectors, self.input_dropout))
        return Features(*self.net(vectors, state, lengths=lengths, tail=tail, depth=depth, aux=aux))

    def _loss(self, features: Features, targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        mask = self._output_mask(features.output)
        dropped = masked(features.output, mask)
        parts = {"main": self.head.loss(dropped, targets)}
        if features.aux is not None and len(features.aux):
            # the same mask as the output's, as the trellis has one for all its layers
            aux = [self.head.loss(masked(level, mask), targets) for level in features.aux]
            parts["aux"] = self.aux_weight * torch.stack(aux).sum()
        counted = targets != IGNORED
        if self.training and self.alpha:
            parts["activation"] = self.alpha * _mean_square(dropped, counted)
        if self.training and self.beta and len(features.output) > 1:
            parts["temporal"] = self.beta * _mean_square(features.output.diff(dim=0), counted[1:])
        return torch.stack(list(parts.values())).sum(), {name: part.detach() for name, part in parts.items()}

    def _output_mask(self, output: Tensor) -> Tensor | None:
        return channel_mask(output, self.output_dropout) if self.training else None

    def _tail(self, ids: Tensor, state: AnyState | None) -> int:
        if state is not None:
            raise ValueError("state must be None with history='discard', which starts every window anew")
        if not self.horizon:
            raise ValueError("history='discard' needs a model with a horizon, got None")
        if ids.shape[1] <= self.horizon:
            raise ValueError(f"ids must have more than horizon = {self.horizon} steps to discard, got {ids.shape[1]}")
        return ids.shape[1] - self.horizon

    def _more_files(self) -> dict[str, str]:
        return {} if self.vocabulary is None else {VOCABULARY: self.vocabulary.to_json()}

    @classmethod
    def _more_arguments(cls, folder: Path) -> dict[str, Any]:
        return {"vocabulary": Vocabulary.load(folder)} if (folder / VOCABULARY).exists() else {}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        tied = getattr(self.head, "weight", None) is self.embedding.weight
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if tied:  # `to_empty` would part them
            self.head.weight = self.embedding.weight
        return self

    @classmethod
    def from_authors(
        cls,
        path: Path | str,
        num_layers: int | None = None,
        dilation: int | Sequence[int] = 1,
        **options: Any,
    ) -> Self:
        """A model that the authors' code saved (`torch.save(model.state_dict(), path)`), in evaluation mode.

        Args:
            path: the file. It is read with `weights_only=True`: a pickle that does anything else is refused.
            num_layers: the file does not tell; default the paper's, for models of the paper's sizes.
            dilation: the file does not tell; the paper's language models have 1.
            options: others that the file does not tell: dropouts, `aux_every`, `aux_weight`, `history`, ...
        """
        path = Path(path)
        arguments, tensors, their_names = authors.read_checkpoint(path, num_layers)
        try:
            model = cls(**{**arguments, "dilation": dilation, **options})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} and the options given do not make a model: {error}") from None
        model._take(tensors, path, their_names)
        return model.eval()


def _mean_square(features: Tensor, counted: Tensor) -> Tensor:
    """Of features (T, B, D), where they are counted (T, B)."""
    squares = at_least_single(features).square().mean(-1)
    return squares.masked_fill(~counted, 0).sum() / counted.sum().clamp(min=1)
