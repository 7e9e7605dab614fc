"""Translation of sequences: an encoder, and a decoder with attention over the encoder's states, on any body.

With source tokens x_1 .. x_S and target tokens y_1 .. y_T, where y_0 is the line break that ends every sentence:

    s_i = K [F(x_1 .. x_i), G(x_S .. x_i)]      encoder: two bodies, one from each end of the sentence
    q_t = L(y_0 .. y_t-1)                       lower decoder
    a_t = sum_i softmax_i(q_t . s_i) s_i        attention, in several heads with maps of their own
    z_t = U((q_1, a_1) .. (q_t, a_t))           upper decoder
    p(y_t) = softmax(E P z_t)                   E: the embedding of the target tokens

In training all steps of a sentence are computed in parallel: no step needs the attention of the step before. Token by
token, the state is that of the two decoders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from trellisnet.core.batch import check_lengths
from trellisnet.core.checks import boolean, positive_int
from trellisnet.core.matmul import Linear
from trellisnet.models.bidirectional import run_both
from trellisnet.models.bodies import body_options, make_body, options_of
from trellisnet.models.body import State, for_inference, needs_state, register_output, run_body
from trellisnet.models.dropout import channel_mask, embed, masked
from trellisnet.models.generation import NextToken
from trellisnet.models.heads.base import IGNORED
from trellisnet.models.heads.softmax import SoftmaxHead
from trellisnet.models.options import Seq2SeqOptions, split_options
from trellisnet.models.pretrained import BuildsItsBody
from trellisnet.models.reading_head import ReadingHead, Source
from trellisnet.models.translation import TranslationMethods
from trellisnet.vocabulary import FILE_NAME, Vocabulary

SOURCE_FILE = "source-vocabulary.json"


@dataclass
class Seq2SeqOutput:
    """The result of a call of a translator.

    Attributes:
        loss: the mean cross-entropy of the targets, with label smoothing in training mode.
        parts: the terms of the loss by name, detached.
        prediction: log-probabilities (B, T, V) of each target, given those before it; None if not asked for.
    """

    loss: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    prediction: Tensor | None = None


register_output(Seq2SeqOutput)


class Seq2Seq(TranslationMethods, BuildsItsBody):
    """A model that translates sequences of tokens, on any body.

    Args:
        source_vocab_size, target_vocab_size: numbers of tokens.
        embedding_size: number E of channels of a token's vector.
        body: name of the body of all four nets; the option `encoder` chooses another one for the encoder.
        start: id of the token before the first one of a translation; usually the one that ends it.
        shared: source and target have the same tokens and one embedding.
        source_vocabulary, target_vocabulary: the tokens, for `translate` on text; saved with the model.
        device, dtype: of the weights; default torch's.
        options: those of `Seq2SeqOptions` and of the body.

    >>> model = Seq2Seq(50, 60, embedding_size=8, body="gru", hidden_size=16)
    >>> source, target = torch.randint(50, (2, 7)), torch.randint(60, (2, 9))
    >>> model(source, target, lengths=[7, 4]).loss.backward()
    >>> len(model.translate([[3, 1, 4]], beams=2, end=0, max_length=5))
    1
    """

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int,
        embedding_size: int,
        *,
        body: str = "trellis",
        start: int = 0,
        shared: bool = False,
        source_vocabulary: Vocabulary | None = None,
        target_vocabulary: Vocabulary | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        size = positive_int("embedding_size", embedding_size)
        self.body = body
        own, net = split_options(options, Seq2SeqOptions, body_options(body))
        if net.get("aux_every") is not None:
            raise ValueError(f"aux_every belongs to models with auxiliary losses, which this is not: got {net}")
        self.options = Seq2SeqOptions(**own)
        self.start = positive_int("start", start, minimum=0)
        self.shared = boolean("shared", shared)
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        side = {"name": body, **net}
        if self.options.encoder is not None:
            side = {**({"hidden_size": net["hidden_size"]} if "hidden_size" in net else {}), **self.options.encoder}
        try:
            encoders: list[Any] = [
                make_body(input_size=size, **side, **place) for _ in range(1 + self.options.bidirectional)
            ]
        except (TypeError, ValueError) as error:
            if self.options.encoder is None:
                raise
            raise ValueError(f"encoder: {error}") from None
        lower: Any = make_body(body, size, **net, **place)
        width = lower.output_size
        self.forward_encoder = encoders[0]
        self.backward_encoder = encoders[1] if self.options.bidirectional else None
        self.net = lower
        states = sum(encoder.output_size for encoder in encoders)
        self.attention = ReadingHead(width, states, self.options.attention_heads, **place)
        self.upper = make_body(body, 2 * width, **net, **place)
        self.projection = Linear(width, size, **place)
        sizes = [positive_int("source_vocab_size", source_vocab_size, minimum=2)]
        sizes += [positive_int("target_vocab_size", target_vocab_size, minimum=2)]
        if self.shared and sizes[0] != sizes[1]:
            raise ValueError(f"shared needs source_vocab_size = target_vocab_size, got {sizes[0]} and {sizes[1]}")
        self.embedding = nn.Embedding(sizes[1], size, **place)
        self.source_embedding = self.embedding if self.shared else nn.Embedding(sizes[0], size, **place)
        for table, reader in ((self.source_embedding, encoders[0]), (self.embedding, lower)):
            bound = (getattr(reader, "input_scale", None) or 1.0) / math.sqrt(size)
            nn.init.uniform_(table.weight, -bound, bound)
        self.head = SoftmaxHead(self.embedding.weight)  # type: ignore[arg-type]  # a Parameter
        for name, vocabulary, expected in (
            ("source_vocabulary", source_vocabulary, sizes[0]),
            ("target_vocabulary", target_vocabulary, sizes[1]),
        ):
            if vocabulary is not None and len(vocabulary) != expected:
                raise ValueError(f"{name} must have {expected} tokens, as the model has, got {len(vocabulary)}")
        self.source_vocabulary, self.target_vocabulary = source_vocabulary, target_vocabulary

    def forward(
        self,
        source: Tensor,
        targets: Tensor,
        lengths: Sequence[int] | Tensor | None = None,
        *,
        depth: int | None = None,
        predict: bool = True,
    ) -> Seq2SeqOutput:
        """Read source sentences and the sentences that translate them; compute the loss.

        Args:
            source: (B, S), token ids.
            targets: (B, T), token ids of the translations, each with the line break at its end; -100 after it.
            lengths: the length of each source sentence; default S.
            depth: number of layers of all four nets; default their own. Not every body accepts it.
            predict: also return the log-probabilities; without them the loss takes less time and memory.
        """
        sizes = len(self.source_embedding.weight), len(self.embedding.weight)
        for name, ids, size in zip(("source", "targets"), (source, targets), sizes, strict=True):
            if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.dim() != 2 or 0 in ids.shape:
                got = f"{ids.dtype} {tuple(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
                raise ValueError(f"{name} must be integers (B, steps) and not empty, got {got}")
            known = ids.masked_fill(ids == IGNORED, 0) if ids is targets else ids
            if ids.device.type == "cpu" and not 0 <= int(known.min()) <= int(known.max()) < size:
                allowed = f"0 .. {size - 1}{f', or be {IGNORED}' * (ids is targets)}"
                raise ValueError(f"{name} must lie in {allowed}, got {int(ids.min())} to {int(ids.max())}")
        if len(source) != len(targets):
            raise ValueError(f"targets must have the {len(source)} rows of source, got {len(targets)}")
        memory = self.encode(source, lengths, depth=depth)
        counted = targets != IGNORED
        known = targets.masked_fill(~counted, 0)
        before = torch.cat([known.new_full((len(known), 1), self.start), known[:, :-1]], dim=1)
        features, _ = self.decode(before, memory, depth=depth)
        smoothing = self.options.label_smoothing if self.training else 0.0
        if not predict:
            inside = counted.t()  # padding is not worth its softmax
            loss = self.head.smoothed_loss(features[inside], targets.t()[inside], smoothing)
            return Seq2SeqOutput(loss, {"main": loss.detach()})
        log_prob = self.head.log_prob(features).transpose(0, 1)  # (B, T, V)
        nll = -log_prob.gather(2, known.unsqueeze(2)).squeeze(2)
        if smoothing:
            nll = (1 - smoothing) * nll - smoothing * log_prob.mean(2)
        loss = nll.masked_fill(~counted, 0).sum() / counted.sum().clamp(min=1)
        return Seq2SeqOutput(loss, {"main": loss.detach()}, log_prob)

    def encode(self, source: Tensor, lengths: Sequence[int] | Tensor | None = None, depth: int | None = None) -> Source:
        """Return keys, values (S, B, D) and the mask (S, B) of source sentences (B, S), for the attention."""
        ends = check_lengths(lengths, source.shape[1], len(source))
        vectors = self._vectors(source, self.source_embedding)
        states = run_both(self.forward_encoder, self.backward_encoder, vectors, lengths=ends, depth=depth).output
        places = torch.arange(len(vectors), device=source.device)[:, None]
        stops = torch.tensor([len(vectors)] * len(source) if ends is None else ends, device=source.device)
        return self.attention.read(states, places < stops)

    def decode(
        self, before: Tensor, memory: Source, state: State = None, depth: int | None = None
    ) -> tuple[Tensor, State]:
        """Return the features (T, B, E) of the next tokens after `before` (B, T), and the state of both decoders."""
        lower, upper = (None, None) if state is None else state
        low = run_body(self.net, self._vectors(before, self.embedding), lower, depth=depth)
        context = self.attention(low.output, memory)
        high = run_body(self.upper, torch.cat([low.output, context], dim=2), upper, depth=depth)
        output = high.output
        if self.training:
            output = masked(output, channel_mask(output, self.options.output_dropout))
        return self.projection(output), (low.state, high.state)

    def alignment(self, source: Tensor, targets: Tensor) -> Tensor:
        """Return the attention weights (T, S) of one pair of sentences, (1, S) and (1, T), the mean over the heads."""
        with self.reading():
            memory = self.encode(source)
            before = torch.cat([targets.new_full((1, 1), self.start), targets[:, :-1]], dim=1)
            low = run_body(self.net, self._vectors(before, self.embedding))
            return self.attention.weights(low.output, memory)[0].mean(0)

    def _vectors(self, ids: Tensor, table: nn.Embedding) -> Tensor:
        """Embed token ids (B, T) as (T, B, E), with dropout in training mode."""
        vectors = embed(ids.t(), table.weight)
        return masked(vectors, channel_mask(vectors, self.options.input_dropout)) if self.training else vectors

    def _next_token(self, memory: Source) -> NextToken:
        """Return the decoder as a function from tokens and a state to the log-probabilities of the next token."""
        net, upper = for_inference(self.net), for_inference(self.upper)

        def next_token(ids: Tensor, state: State, lengths: Sequence[int] | None) -> tuple[Tensor, State]:
            below, above, source = (None, None, memory) if state is None else state
            with self.reading():
                vectors = embed(ids.t().to(self.embedding.weight.device), self.embedding.weight)
                low = run_body(net, vectors, below)
                joined = torch.cat([low.output, self.attention(low.output, source)], dim=2)
                high = run_body(upper, joined, above)
                log_prob = self.head.log_prob(self.projection(high.output[-1])).cpu().double()
            return log_prob, (needs_state(net, low.state), needs_state(upper, high.state), source)

        return next_token

    def _arguments(self) -> dict[str, Any]:
        return {
            "source_vocab_size": len(self.source_embedding.weight),
            "target_vocab_size": len(self.embedding.weight),
            "embedding_size": self.projection.out_features,
            "body": self.body,
            "start": self.start,
            "shared": self.shared,
            **vars(self.options),
            **options_of(self.net),
        }

    def _extra_files(self) -> dict[str, str]:
        given = {SOURCE_FILE: self.source_vocabulary, FILE_NAME: self.target_vocabulary}
        return {name: vocabulary.to_json() for name, vocabulary in given.items() if vocabulary is not None}

    @classmethod
    def _extra_arguments(cls, folder: Path) -> dict[str, Any]:
        files = {"source_vocabulary": SOURCE_FILE, "target_vocabulary": FILE_NAME}
        return {key: Vocabulary.load(folder, name) for key, name in files.items() if (folder / name).exists()}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.head.weight = self.embedding.weight  # type: ignore[assignment]  # `to_empty` makes two parameters of it
        return self


class TrellisSeq2Seq(Seq2Seq):
    """A model that translates sequences of tokens with trellis networks: an encoder from each end, and a decoder.

    Args:
        source_vocab_size, target_vocab_size: numbers of tokens.
        embedding_size: number of channels of a token's vector.
        hidden_size, num_layers: width and depth of each trellis.
        arguments: further arguments of `Seq2Seq`, and options of `Seq2SeqOptions` and `TrellisOptions`.

    >>> model = TrellisSeq2Seq(50, 60, embedding_size=8, hidden_size=16, num_layers=2, path="sweeps")
    >>> model(torch.randint(50, (2, 7)), torch.randint(60, (2, 9))).loss.backward()
    """

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int,
        embedding_size: int,
        hidden_size: int,
        num_layers: int,
        **arguments: Any,
    ) -> None:
        if (body := arguments.pop("body", "trellis")) != "trellis":
            raise ValueError(f"body must be 'trellis' in a TrellisSeq2Seq, got {body!r}: use Seq2Seq")
        arguments |= {"hidden_size": hidden_size, "num_layers": num_layers}
        super().__init__(source_vocab_size, target_vocab_size, embedding_size, **arguments)
