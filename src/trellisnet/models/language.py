"""Language models: an embedding, a body, a head. `TrellisLM` is the one whose body is a trellis network."""

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
from trellisnet.core.options import TrellisOptions
from trellisnet.core.trellis import TrellisNet
from trellisnet.models import authors
from trellisnet.models.bodies import options_of
from trellisnet.models.body import BodyOutput, State, check_body, detach, repackage, run_body
from trellisnet.models.dropout import channel_mask, embed, masked
from trellisnet.models.heads import IGNORED, make_head
from trellisnet.models.heads.base import at_least_single
from trellisnet.models.options import HISTORIES, LanguageOptions, aux_weight_for, split_options
from trellisnet.models.pretrained import BuildsItsBody
from trellisnet.models.text import TextMethods
from trellisnet.vocabulary import FILE_NAME as VOCABULARY
from trellisnet.vocabulary import Vocabulary


@dataclass
class LMOutput:
    """What a call of a language model gives."""

    state: State  # to be passed to the call on the text that follows; cut from the graph
    loss: Tensor | None = None  # with targets: the mean over them, and what regularises in training
    parts: dict[str, Tensor] = field(default_factory=dict)  # what the loss is the sum of, cut from the graph
    log_prob: Tensor | None = None  # without targets: (B, T, V), of the next word at every step


class LanguageModel(TextMethods):
    """A language model on any body: embedding, body, output head.

    Args:
        body: what follows `trellisnet.models.body`; its `input_size` is the size of the words' vectors.
        vocab_size: number V of words.
        vocabulary: the words themselves, for methods that take text; saved with the model.
        options: those of `LanguageOptions`.

    >>> from trellisnet.baselines.rnn import LstmBody
    >>> lm = LanguageModel(LstmBody(8, hidden_size=32), vocab_size=50, tied=False)
    >>> ids = torch.randint(50, (2, 21))
    >>> out = lm(ids[:, :-1], ids[:, 1:])
    >>> out.loss.backward()
    >>> out = lm(ids[:, :-1], ids[:, 1:], out.state)  # the text goes on
    >>> tuple(lm.generate(ids, max_new_tokens=5).shape)
    (2, 26)
    """

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
            self.embedding.weight,  # type: ignore[arg-type]  # a Parameter, which torch calls a Tensor
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
        """Log-probabilities of the word that follows each: (B, T) to (B, T, V). Without dropout only after `eval()`."""
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
        """What the head reads of a text (B, T), time first; options as those of `run_body`."""
        word_dropout = self.options.embedding_dropout if self.training else 0.0
        vectors = embed(ids.t(), self.embedding.weight, word_dropout)  # (T, B, E)
        if self.training:
            vectors = masked(vectors, channel_mask(vectors, self.options.input_dropout))
        return run_body(self.net, vectors, state, lengths=lengths, tail=tail, depth=depth, aux=aux)

    def _loss(self, features: BodyOutput, targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        mask = self._output_mask(features.output)
        dropped = masked(features.output, mask)
        parts = {"main": self.head.loss(dropped, targets)}
        if features.aux is not None and len(features.aux):
            # the same mask as the output's, as the trellis has one for all its layers
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

    def _tail(self, ids: Tensor, state: State) -> int:
        horizon = self.options.horizon
        if state is not None:
            raise ValueError("state must be None with history='discard', which starts every window anew")
        if horizon is None:
            raise ValueError("history='discard' needs a model with a horizon, got None")
        if ids.shape[1] <= horizon:
            raise ValueError(f"ids must have more than horizon = {horizon} steps to discard, got {ids.shape[1]}")
        return ids.shape[1] - horizon

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


class TrellisLM(LanguageModel, BuildsItsBody):
    """A language model on a trellis network.

    Args:
        vocab_size: number V of words.
        embedding_size: channels of a word's vector.
        hidden_size, num_layers: of the trellis. The paper's tables count `hidden_size` without the output channels;
            this does not.
        output_size: channels the head reads; default `embedding_size` where the two are tied by a softmax, or else
            `hidden_size`.
        head: "softmax", "mos", "adaptive" or "cluster".
        vocabulary: the words themselves, for methods that take text; saved with the model.
        device, dtype: of the weights; default torch's.
        options: further ones of `LanguageOptions` and `TrellisOptions`.

    >>> lm = TrellisLM(vocab_size=50, embedding_size=8, hidden_size=32, num_layers=4)
    >>> ids = torch.randint(50, (2, 21))
    >>> out = lm(ids[:, :-1], ids[:, 1:])
    >>> out.loss.backward()
    >>> out = lm(ids[:, :-1], ids[:, 1:], out.state)  # the text goes on
    >>> tuple(lm.log_prob(ids).shape)
    (2, 21, 50)
    """

    net: TrellisNet

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        hidden_size: int,
        num_layers: int,
        output_size: int | None = None,
        head: str = "softmax",
        *,
        vocabulary: Vocabulary | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        own, net = split_options({**options, "head": head}, LanguageOptions, TrellisOptions)
        positive_int("embedding_size", embedding_size)
        if output_size is None and LanguageOptions(**own).reads_embedding:
            output_size = embedding_size
            if embedding_size > hidden_size:
                raise ValueError(
                    f"hidden_size must be at least embedding_size = {embedding_size}, which is the output's size when "
                    f"the two are tied, got {hidden_size}; or choose tied=False"
                )
        body = TrellisNet(embedding_size, hidden_size, num_layers, output_size, device=device, dtype=dtype, **net)
        super().__init__(body, vocab_size, vocabulary=vocabulary, **own)

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "embedding_size": self.net.input_size, **options_of(self.net)}

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
