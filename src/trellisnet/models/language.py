"""Language models: an embedding, a body and an output head."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from trellisnet.core.checks import one_of, positive_int
from trellisnet.models.body import BodyOutput, State, check_body, detach, register_output, repackage, run_body
from trellisnet.models.dropout import channel_mask, embed, masked
from trellisnet.models.heads import IGNORED, make_head
from trellisnet.models.heads.base import at_least_single
from trellisnet.models.options import HISTORIES, LanguageOptions, aux_weight_for, split_options
from trellisnet.models.text import TextMethods
from trellisnet.vocabulary import FILE_NAME as VOCABULARY
from trellisnet.vocabulary import Vocabulary

MODEL_TYPE = "trellisnet"  # by which `transformers` knows the models of this package


@dataclass
class LMOutput:
    """The result of a call of a language model.

    Attributes:
        state: the state after the text, detached; pass it to the call on the text that follows.
        loss: with targets: the mean negative log-likelihood, plus regularisers in training mode.
        parts: the terms of the loss by name, detached.
        log_prob: without targets: (B, T, V), log-probabilities of the next token at every step.
    """

    state: State
    loss: Tensor | None = None
    parts: dict[str, Tensor] = field(default_factory=dict)
    log_prob: Tensor | None = None


register_output(LMOutput)


class LanguageModel(TextMethods):
    """A language model on any body: embedding, body, output head.

    Args:
        body: a module that follows the protocol in `trellisnet.models.body`; its `input_size` is the embedding size.
        vocab_size: number V of tokens.
        vocabulary: the tokens, for methods that take text; saved with the model.
        options: those of `LanguageOptions`.

    >>> from trellisnet.baselines.rnn import LstmBody
    >>> lm = LanguageModel(LstmBody(8, hidden_size=32), vocab_size=50, tied=False)
    >>> ids = torch.randint(50, (2, 21))
    >>> out = lm(ids[:, :-1], ids[:, 1:])
    >>> out.loss.backward()
    >>> out = lm(ids[:, :-1], ids[:, 1:], out.state)  # continue from the state
    >>> tuple(lm.generate(ids, max_new_tokens=5).shape)
    (2, 26)
    """

    _labels = {"model_type": MODEL_TYPE}  # noqa: RUF012  # declared as a ClassVar

    def __init__(
        self, body: nn.Module, vocab_size: int, *, vocabulary: Vocabulary | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.vocab_size = positive_int("vocab_size", vocab_size, minimum=2)
        (own,) = split_options(options, LanguageOptions)
        self.options = LanguageOptions(**own)
        self.net = check_body(body)
        self.aux_weight = aux_weight_for(body, self.options.aux_weight)
        place = next(body.parameters(), torch.empty(0))
        self.embedding = nn.Embedding(vocab_size, self.net.input_size, device=place.device, dtype=place.dtype)
        scale = getattr(body, "input_scale", None)
        bound = 0.1 if scale is None else scale / math.sqrt(self.net.input_size)
        nn.init.uniform_(self.embedding.weight, -bound, bound)
        self.head = make_head(
            self.options.head,
            self.net.output_size,
            self.embedding.weight,  # type: ignore[arg-type]  # a Parameter, which torch annotates as a Tensor
            **self.options.head_options(),
        )
        if vocabulary is not None and not isinstance(vocabulary, Vocabulary):
            raise TypeError(f"vocabulary must be a Vocabulary, got {type(vocabulary).__name__}")
        if vocabulary is not None and len(vocabulary) != vocab_size:
            raise ValueError(f"vocabulary must have vocab_size = {vocab_size} words, got {len(vocabulary)}")
        self.vocabulary = vocabulary

    def _arguments(self) -> dict[str, Any]:
        return {"vocab_size": self.vocab_size, **vars(self.options)}

    def forward(
        self,
        ids: Tensor,
        targets: Tensor | None = None,
        state: State = None,
        *,
        depth: int | None = None,
        history: str | None = None,
    ) -> LMOutput:
        """Read text; compute the loss of the targets, or without targets the log-probabilities of the next token.

        Args:
            ids: (B, T), token ids.
            targets: (B, T), the next token at every step. Targets of -100 are ignored, so that texts of unequal length
                can be padded on the right; the returned state is then the one after the padding.
            state: the state that the call on the preceding text returned.
            depth: number of layers; default the body's own. Not every body accepts it.
            history: default the model's own in training mode, "carry" otherwise. With "discard", the result covers the
                steps after the first `horizon` only, and has no state.
        """
        ids = self._to_ids("ids", ids)
        history = (self.options.history if self.training else "carry") if history is None else history
        one_of("history", history, HISTORIES)
        tail = self._tail(ids, state) if history == "discard" else None
        with_aux = self.training and targets is not None and bool(self.aux_weight)
        features = self.features(ids, state, tail=tail, depth=depth, aux=with_aux)
        after = repackage(features.state) if history == "repackage" else detach(features.state)
        if targets is None:
            dropped = masked(features.output, self._output_mask(features.output))
            return LMOutput(after, log_prob=self.head.log_prob(dropped).transpose(0, 1))
        targets = self._to_ids("targets", targets, IGNORED)
        if targets.shape != ids.shape:
            raise ValueError(f"targets must have the shape of ids, {tuple(ids.shape)}, got {tuple(targets.shape)}")
        loss, parts = self._loss(features, targets.t()[-len(features.output) :])
        return LMOutput(after, loss, parts)

    def log_prob(self, ids: Tensor, state: State = None) -> Tensor:
        """Log-probabilities of the next token at every step, (B, T) to (B, T, V); with dropout in training mode."""
        log_prob = self(ids, state=state, history="carry").log_prob
        assert isinstance(log_prob, Tensor)
        return log_prob

    def features(
        self,
        ids: Tensor,
        state: State = None,
        *,
        lengths: Sequence[int] | Tensor | None = None,
        tail: int | None = None,
        depth: int | None = None,
        aux: bool = False,
    ) -> BodyOutput:
        """Return the features of a text (B, T) before the head, as (T, B, D) in a `BodyOutput`.

        Args:
            ids: (B, T), token ids.
            state: the state that the call on the preceding text returned.
            lengths: the length of each text; default T.
            tail: compute the last n steps of each text only, and no state.
            depth: number of layers; default the body's own.
            aux: also return the outputs of inner layers.
        """
        return run_body(self.net, self.vectors(ids), state, lengths=lengths, tail=tail, depth=depth, aux=aux)

    def vectors(self, ids: Tensor) -> Tensor:
        """Embed a text (B, T) as the input (T, B, E) of the body; with dropout in training mode."""
        token_dropout = self.options.embedding_dropout if self.training else 0.0
        vectors = embed(ids.t(), self.embedding.weight, token_dropout)
        return masked(vectors, channel_mask(vectors, self.options.input_dropout)) if self.training else vectors

    def _loss(self, features: BodyOutput, targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        mask = self._output_mask(features.output)
        dropped = masked(features.output, mask)
        parts = {"main": self.head.loss(dropped, targets)}
        if features.aux is not None and len(features.aux):
            # the same mask as for the output, because a trellis also has one mask for all its layers
            aux = [self.head.loss(masked(level, mask), targets) for level in features.aux]
            parts["aux"] = self.aux_weight * torch.stack(aux).sum()
        counted = targets != IGNORED
        if self.training and self.options.alpha:
            parts["activation"] = self.options.alpha * _mean_square(dropped, counted)
        if self.training and self.options.beta and len(features.output) > 1:
            parts["temporal"] = self.options.beta * _mean_square(features.output.diff(dim=0), counted[1:])
        return torch.stack(list(parts.values())).sum(), {name: part.detach() for name, part in parts.items()}

    def _output_mask(self, output: Tensor) -> Tensor | None:
        return channel_mask(output, self.options.output_dropout) if self.training else None

    def wanted_steps(self, steps: int) -> int | None:
        """How many of the last steps of a training window of n steps have a loss; None: all."""
        horizon = self.options.horizon if self.options.history == "discard" else None
        return None if horizon is None else steps - horizon

    def _tail(self, ids: Tensor, state: State) -> int:
        """Return the number of steps after the context of the history "discard"."""
        horizon = self.options.horizon
        if state is not None:
            raise ValueError("state must be None with history='discard', which starts every window without one")
        if horizon is None:
            raise ValueError("history='discard' needs a model with a horizon, got None")
        if ids.shape[1] <= horizon:
            raise ValueError(f"ids must have more than horizon = {horizon} steps to discard, got {ids.shape[1]}")
        return ids.shape[1] - horizon

    def _extra_files(self) -> dict[str, str]:
        return {} if self.vocabulary is None else {VOCABULARY: self.vocabulary.to_json()}

    @classmethod
    def _extra_arguments(cls, folder: Path) -> dict[str, Any]:
        return {"vocabulary": Vocabulary.load(folder)} if (folder / VOCABULARY).exists() else {}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        tied = getattr(self.head, "weight", None) is self.embedding.weight
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if tied:  # `to_empty` makes two parameters of it
            self.head.weight = self.embedding.weight
        return self


def _mean_square(features: Tensor, counted: Tensor) -> Tensor:
    """Mean square of features (T, B, D) over the steps marked in `counted` (T, B)."""
    squares = at_least_single(features).square().mean(-1)
    return squares.masked_fill(~counted, 0).sum() / counted.sum().clamp(min=1)
