"""The text methods of a language model: generation and scoring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import index
from typing import Any, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trellisnet.core.checks import non_negative, positive_int
from trellisnet.models.beam import beam_search
from trellisnet.models.body import BodyOutput, State, for_inference, needs_state, run_body
from trellisnet.models.dropout import embed
from trellisnet.models.evaluation import ContinuousCache, DynamicEvaluation, Score, score
from trellisnet.models.generation import NextToken, Sampling, stream
from trellisnet.models.heads import Head
from trellisnet.models.pretrained import Pretrained
from trellisnet.vocabulary import Vocabulary

Prompts = Tensor | str | Sequence[str] | Sequence[Sequence[int]] | Sequence[Tensor]


class TextMethods(Pretrained):
    """Generation and scoring, for a model with the attributes below."""

    net: Any
    embedding: nn.Embedding
    head: Head
    vocabulary: Vocabulary | None
    vocab_size: int
    features: Callable[..., BodyOutput]

    def generate(
        self,
        prompts: Prompts,
        max_new_tokens: int,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float = 1.0,
        seed: int | None = None,
        beams: int | None = None,
        length_penalty: float = 0.0,
        stop: int | str | Iterable[int | str] = (),
    ) -> Any:
        """Continue texts; return them with their continuations, in the form of the prompts.

        By default the most probable token is chosen in each step (greedy). With `temperature`, `top_k`, `top_p` or
        `seed`, tokens are sampled. With `beams`, a beam search looks for the most probable continuation.

        Args:
            prompts: one text or a list of texts; or token ids: a tensor (B, T), or a list of sequences of any lengths.
            max_new_tokens: maximum number of tokens to add per text.
            temperature: below 1 probable tokens become more probable, above 1 less; default 1.
            top_k: sample from the k most probable tokens only.
            top_p: sample from the smallest set of most probable tokens with total probability p only.
            repetition_penalty: above 1, tokens that the text already has become less probable.
            seed: seed of the sampling; the same seed and prompts give the same tokens.
            beams: number of hypotheses that a beam search keeps per text.
            length_penalty: a hypothesis is ranked by the sum of its log-probabilities divided by its length to this
                power.
            stop: tokens that end a text: ids, or tokens of the vocabulary.

        Returns:
            (B, T + new) in int64 for a tensor; texts that end early are padded with their stop token. A list of lists
            for a list of sequences, a string for a string, and a list of strings for a list of strings.
        """
        rows, stop_ids = self._encode_prompts(prompts), self._encode_stop(stop)
        positive_int("max_new_tokens", max_new_tokens)
        sampling = Sampling(temperature, top_k, top_p, repetition_penalty, seed)
        if beams is None:
            if length_penalty != 0:
                raise ValueError(f"length_penalty belongs to a beam search: got {length_penalty} without beams")
            new: list[list[int]] = [[] for _ in rows]
            for tokens in stream(self._next_token(), rows, max_new_tokens, sampling, stop_ids):
                for text, token in zip(new, tokens, strict=True):
                    text.extend([] if token is None else [token])
        else:
            if not sampling.greedy:
                raise ValueError("beams search and draw nothing: temperature, top_k, top_p and seed must be None")
            found = beam_search(
                self._next_token(),
                rows,
                [max_new_tokens] * len(rows),
                positive_int("beams", beams),
                non_negative("length_penalty", length_penalty),
                repetition_penalty,
                stop_ids,
            )
            new = [list(tokens) for tokens in found]
        return self._format_like(prompts, [[*row, *tokens] for row, tokens in zip(rows, new, strict=True)])

    def stream(
        self, prompts: Prompts, max_new_tokens: int, *, stop: int | str | Iterable[int | str] = (), **sampling: Any
    ) -> Iterator[list[int | None]]:
        """Yield the tokens of `generate` as they are chosen: one list per step with one token id per prompt.

        After the stop token of a text its entry is None. Options are those of `generate`, without beams. If the weights
        change during the stream, later tokens change too; a kernel with weight norm is the exception, because it is
        normalised once at the start.
        """
        rows, stop_ids = self._encode_prompts(prompts), self._encode_stop(stop)
        positive_int("max_new_tokens", max_new_tokens)
        options = Sampling(**sampling)
        return stream(self._next_token(), rows, max_new_tokens, options, stop_ids)

    def stream_text(self, prompt: str, max_new_tokens: int, **options: Any) -> Iterator[str]:
        """Yield the continuation of a text in pieces as it is generated; options are those of `stream`."""
        if not isinstance(prompt, str):
            raise TypeError(f"prompt must be a string, got {type(prompt).__name__}")
        return self._decode_stream(self._encode_text("prompt", prompt), self.stream(prompt, max_new_tokens, **options))

    def _decode_stream(self, ids: list[int], steps: Iterator[list[int | None]]) -> Iterator[str]:
        # the text of a token depends on the tokens before it, so the whole text is decoded in each step
        vocabulary = self._require_vocabulary()
        written = len(vocabulary.decode(ids))
        for step in steps:
            ids += [token for token in step if token is not None]
            text = vocabulary.decode(ids)
            yield text[written:]
            written = len(text)

    def score(
        self,
        text: str | Tensor | Sequence[int] | NDArray[np.integer],
        *,
        window: int = 128,
        cache: ContinuousCache | None = None,
        dynamic: DynamicEvaluation | None = None,
    ) -> Score:
        """Score a text: the log-probability of every token but the first, and the perplexity.

        The text is read as a stream: every token is predicted from its full receptive field.

        Args:
            text: a text, or token ids: a sequence, or (B, T) for several texts of equal length.
            window: number of tokens per forward pass; without `dynamic` it changes the memory use, not the result.
            cache: mix the model's probabilities with those of a continuous cache.
            dynamic: train the model on each window after it is scored.
        """
        for name, option, kind in (("cache", cache, ContinuousCache), ("dynamic", dynamic, DynamicEvaluation)):
            if option is not None and not isinstance(option, kind):
                raise TypeError(f"{name} must be a {kind.__name__} or None, got {option!r}")
        return score(self, self.read_columns("text", text), positive_int("window", window), cache, dynamic)

    def read_columns(self, name: str, text: str | Tensor | Sequence[int] | NDArray[np.integer]) -> Tensor:
        """Convert one text, or the ids (B, T) of several, to ids (B, T) on the model's device.

        Raises:
            ValueError: a text has fewer than two tokens, or an id is out of range.
            TypeError: `text` is neither text nor integers.
        """
        if isinstance(text, Tensor) and text.dim() == 2:
            ids = self._to_ids(name, text)
        else:
            ids = torch.tensor([self._encode_text(name, text)], device="cpu")
        if ids.shape[1] < 2:
            raise ValueError(f"{name} must have at least two words: the first is only read")
        return ids.to(self.embedding.weight.device)

    def _format_like(self, prompts: Prompts, texts: list[list[int]]) -> Any:
        """Convert lists of ids to the form of the prompts: a tensor, a string, strings, or the lists."""
        if isinstance(prompts, Tensor):
            longest = max(map(len, texts))
            padded = [text + text[-1:] * (longest - len(text)) for text in texts]
            return torch.tensor(padded, device=prompts.device)
        if isinstance(prompts, str):
            return self._require_vocabulary().decode(texts[0])
        if isinstance(prompts[0], str):
            return [self._require_vocabulary().decode(text) for text in texts]
        return texts

    def _next_token(self) -> NextToken:
        """Return the model as a function from tokens and a state to the log-probabilities of the next token."""
        net, device = for_inference(self.net), self.embedding.weight.device

        def next_token(ids: Tensor, state: State, lengths: Sequence[int] | None) -> tuple[Tensor, State]:
            with self.reading():
                vectors = embed(ids.t().to(device), self.embedding.weight)
                out = run_body(net, vectors, state, lengths=lengths)
                y = out.output
                last = y[-1] if lengths is None else y[[n - 1 for n in lengths], range(len(lengths))]
                log_prob = self.head.log_prob(last).cpu().double()
            if not log_prob.amax(1).isfinite().all():
                raise ValueError("the model's log-probabilities are not finite: its weights may not be either")
            return log_prob, needs_state(net, out.state)

        return next_token

    def _encode_prompts(self, prompts: Prompts) -> list[list[int]]:
        """Convert any accepted form of prompts to lists of token ids."""
        if isinstance(prompts, Tensor):
            rows: list[list[int]] = self._to_ids("prompts", prompts.cpu()).tolist()
            return rows
        if not isinstance(prompts, (str, list, tuple)):
            kind = type(prompts).__name__
            raise TypeError(f"prompts must be text, several texts, a tensor (B, T) or a list of sequences, got {kind}")
        texts = [prompts] if isinstance(prompts, str) else prompts
        if not texts:
            raise ValueError("prompts must not be empty")
        return [self._encode_text(f"prompts[{i}]", text) for i, text in enumerate(texts)]

    def _encode_text(self, name: str, text: Any) -> list[int]:
        """Convert a text, or any sequence of integers, to a list of token ids."""
        if isinstance(text, str):
            text = self._require_vocabulary().encode(text)
        try:
            # copy an array: those of a dataset are read-only, and torch warns about read-only arrays
            ids = torch.as_tensor(np.array(text) if isinstance(text, np.ndarray) else text, device="cpu")
        except (TypeError, ValueError, RuntimeError, OverflowError):
            ids = torch.zeros((), device="cpu")
        if ids.dim() != 1 or (ids.is_floating_point() and ids.numel()):
            raise TypeError(f"{name} must be text or a sequence of integers, got {text!r}")
        if not len(ids):
            raise ValueError(f"{name} must not be empty: there is nothing to continue")
        encoded: list[int] = self._to_ids(name, ids.unsqueeze(0))[0].tolist()
        return encoded

    def _encode_stop(self, stop: int | str | Iterable[int | str]) -> frozenset[int]:
        stop = stop.tolist() if isinstance(stop, Tensor) else stop
        tokens = list(stop) if isinstance(stop, Iterable) and not isinstance(stop, str) else [stop]
        return frozenset(self._stop_id(token) for token in tokens)

    def _stop_id(self, token: Any) -> int:
        number = self._require_vocabulary().index.get(token) if isinstance(token, str) else token
        if (
            not isinstance(number, SupportsIndex)
            or isinstance(number, bool)
            or not 0 <= index(number) < self.vocab_size
        ):
            raise ValueError(f"stop must be words of the vocabulary or numbers below {self.vocab_size}, got {token!r}")
        return index(number)

    def _require_vocabulary(self) -> Vocabulary:
        if self.vocabulary is None:
            raise ValueError("text needs a model with a vocabulary, and this one has none: use numbers of words")
        return self.vocabulary

    def _to_ids(self, name: str, ids: Tensor, also: int | None = None) -> Tensor:
        """Return token ids (B, T) in int64. On a CPU, check that each is below `vocab_size` or equal to `also`."""
        if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            kind = str(ids.dtype) if isinstance(ids, Tensor) else type(ids).__name__
            raise TypeError(f"{name} must be integers, got {kind}")
        if ids.dim() != 2 or 0 in ids.shape:
            raise ValueError(f"{name} must be (B, T) and not empty, got shape {tuple(ids.shape)}")
        ids = ids.long()
        if ids.device.type == "cpu" and not torch.compiler.is_compiling():  # on a GPU the check would synchronise
            allowed = (ids >= 0) & (ids < self.vocab_size)
            wrong = ids[~allowed if also is None else ~allowed & (ids != also)]
            if len(wrong):
                raise ValueError(f"{name} must lie in 0 .. {self.vocab_size - 1}, got {int(wrong[0])}")
        return ids
