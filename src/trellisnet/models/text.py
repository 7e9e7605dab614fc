"""What a language model does with text: write it and judge it."""

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
from trellisnet.models.generation import NextWords, Sampling, stream
from trellisnet.models.heads import Head
from trellisnet.models.pretrained import Pretrained
from trellisnet.vocabulary import Vocabulary

Prompts = Tensor | str | Sequence[str] | Sequence[Sequence[int]] | Sequence[Tensor]


class TextMethods(Pretrained):
    """Generation and scoring, for a model that has the parts named here."""

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
        """Texts with their continuations, in the form of the prompts.

        Without further options the most probable word is chosen in each step (greedy). With `temperature`, `top_k`,
        `top_p` or `seed`, words are drawn at random; with `beams`, a search looks for the most probable continuation.

        Args:
            prompts: a text or several; numbers of words as (B, T), or as a list of sequences of any lengths.
            max_new_tokens: how many words to add at most.
            temperature: below 1 the probable words become more so, above 1 less; default 1.
            top_k: draw only from the k most probable words.
            top_p: draw only from the fewest words that together have the probability p.
            repetition_penalty: above 1, words that are in the text already become rarer.
            seed: for the same words every time, given the same prompts.
            beams: hypotheses that a beam search keeps of every text.
            length_penalty: a hypothesis counts as the sum of its log-probabilities over its length to this power.
            stop: words that end a text (numbers, or words of the vocabulary).

        Returns:
            (B, T + new) for (B, T), as int64, where texts that ended early are filled up with their stop word; a list
            of lists for a list of sequences; a string for a string, and a list of strings for several.
        """
        rows, ends = self._read_prompts(prompts), self._read_stop(stop)
        positive_int("max_new_tokens", max_new_tokens)
        sampling = Sampling(temperature, top_k, top_p, repetition_penalty, seed)
        if beams is None:
            if length_penalty != 0:
                raise ValueError(f"length_penalty belongs to a beam search: got {length_penalty} without beams")
            new: list[list[int]] = [[] for _ in rows]
            for words in stream(self._reader(), rows, max_new_tokens, sampling, ends):
                for text, word in zip(new, words, strict=True):
                    text.extend([] if word is None else [word])
        else:
            if not sampling.greedy:
                raise ValueError("beams search and draw nothing: temperature, top_k, top_p and seed must be None")
            found = beam_search(
                self._reader(),
                rows,
                max_new_tokens,
                positive_int("beams", beams),
                non_negative("length_penalty", length_penalty),
                repetition_penalty,
                ends,
            )
            new = [list(words) for words in found]
        return self._in_form_of(prompts, [[*row, *words] for row, words in zip(rows, new, strict=True)])

    def stream(
        self, prompts: Prompts, max_new_tokens: int, *, stop: int | str | Iterable[int | str] = (), **sampling: Any
    ) -> Iterator[list[int | None]]:
        """The words of `generate` as they are chosen: a list a step, with one word a prompt, or None after its end.

        Options as those of `generate`, without beams. A model that changes meanwhile changes what is written, except
        for a kernel under weight norm, which is normalised once at the start.
        """
        rows, ends = self._read_prompts(prompts), self._read_stop(stop)
        positive_int("max_new_tokens", max_new_tokens)
        options = Sampling(**sampling)
        return stream(self._reader(), rows, max_new_tokens, options, ends)

    def stream_text(self, prompt: str, max_new_tokens: int, **options: Any) -> Iterator[str]:
        """What follows a text, piece by piece as it is made; options as those of `stream`."""
        if not isinstance(prompt, str):
            raise TypeError(f"prompt must be a string, got {type(prompt).__name__}")
        return self._pieces(self._read_prompt("prompt", prompt), self.stream(prompt, max_new_tokens, **options))

    def _pieces(self, words: list[int], steps: Iterator[list[int | None]]) -> Iterator[str]:
        # what a word adds to a text depends on the words before it, so the whole text is decoded each time
        vocabulary = self._need_vocabulary()
        told = len(vocabulary.decode(words))
        for step in steps:
            words += [word for word in step if word is not None]
            text = vocabulary.decode(words)
            yield text[told:]
            told = len(text)

    def score(
        self,
        text: str | Tensor | Sequence[int] | NDArray[np.integer],
        *,
        window: int = 128,
        cache: ContinuousCache | None = None,
        dynamic: DynamicEvaluation | None = None,
    ) -> Score:
        """How well the model knows a text: the log-probability of every word but the first, and the perplexity.

        The text is read as a stream, every word with its full receptive field.

        Args:
            text: a text, or numbers of words: a sequence, or (B, T) for several texts of equal length.
            window: words that are read at a time; without `dynamic` it changes the memory needed but not the result.
            cache: mix the model's probabilities with those of a continuous cache.
            dynamic: let the model learn from each window after it has been judged.
        """
        for name, option, kind in (("cache", cache, ContinuousCache), ("dynamic", dynamic, DynamicEvaluation)):
            if option is not None and not isinstance(option, kind):
                raise TypeError(f"{name} must be a {kind.__name__} or None, got {option!r}")
        return score(self, self.read_columns("text", text), positive_int("window", window), cache, dynamic)

    def read_columns(self, name: str, text: str | Tensor | Sequence[int] | NDArray[np.integer]) -> Tensor:
        """One text, or (B, T) numbers of the words of several, to (B, T) on the model's device; at least two words."""
        if isinstance(text, Tensor) and text.dim() == 2:
            ids = self._to_ids(name, text)
        else:
            ids = torch.tensor([self._read_prompt(name, text)], device="cpu")
        if ids.shape[1] < 2:
            raise ValueError(f"{name} must have at least two words: the first is only read")
        return ids.to(self.embedding.weight.device)

    def _in_form_of(self, prompts: Prompts, texts: list[list[int]]) -> Any:
        if isinstance(prompts, Tensor):
            longest = max(map(len, texts))
            filled = [text + text[-1:] * (longest - len(text)) for text in texts]
            return torch.tensor(filled, device=prompts.device)
        if isinstance(prompts, str):
            return self._need_vocabulary().decode(texts[0])
        if isinstance(prompts[0], str):
            return [self._need_vocabulary().decode(text) for text in texts]
        return texts

    def _reader(self) -> NextWords:
        """The model as generation sees it."""
        net, device = for_inference(self.net), self.embedding.weight.device

        def next_words(ids: Tensor, state: State, lengths: Sequence[int] | None) -> tuple[Tensor, State]:
            with self.reading():
                vectors = embed(ids.t().to(device), self.embedding.weight)
                out = run_body(net, vectors, state, lengths=lengths)
                y = out.output
                last = y[-1] if lengths is None else y[[n - 1 for n in lengths], range(len(lengths))]
                log_prob = self.head.log_prob(last).cpu().double()
            if not log_prob.amax(1).isfinite().all():
                raise ValueError("the model's log-probabilities are not finite: its weights may not be either")
            return log_prob, needs_state(net, out.state)

        return next_words

    def _read_prompts(self, prompts: Prompts) -> list[list[int]]:
        """Texts as lists of numbers."""
        if isinstance(prompts, Tensor):
            rows: list[list[int]] = self._to_ids("prompts", prompts.cpu()).tolist()
            return rows
        if not isinstance(prompts, (str, list, tuple)):
            kind = type(prompts).__name__
            raise TypeError(f"prompts must be text, several texts, a tensor (B, T) or a list of sequences, got {kind}")
        texts = [prompts] if isinstance(prompts, str) else prompts
        if not texts:
            raise ValueError("prompts must not be empty")
        return [self._read_prompt(f"prompts[{i}]", text) for i, text in enumerate(texts)]

    def _read_prompt(self, name: str, text: Any) -> list[int]:
        if isinstance(text, str):
            text = self._need_vocabulary().encode(text)
        try:
            # a copy of an array: those of a dataset cannot be written to, and torch warns of such
            ids = torch.as_tensor(np.array(text) if isinstance(text, np.ndarray) else text, device="cpu")
        except (TypeError, ValueError, RuntimeError, OverflowError):
            ids = torch.zeros((), device="cpu")
        if ids.dim() != 1 or (ids.is_floating_point() and ids.numel()):
            raise TypeError(f"{name} must be text or a sequence of integers, got {text!r}")
        if not len(ids):
            raise ValueError(f"{name} must not be empty: there is nothing to go on from")
        words: list[int] = self._to_ids(name, ids.unsqueeze(0))[0].tolist()
        return words

    def _read_stop(self, stop: int | str | Iterable[int | str]) -> frozenset[int]:
        stop = stop.tolist() if isinstance(stop, Tensor) else stop
        words = list(stop) if isinstance(stop, Iterable) and not isinstance(stop, str) else [stop]
        return frozenset(self._read_word(word) for word in words)

    def _read_word(self, word: Any) -> int:
        number = self._need_vocabulary().index.get(word) if isinstance(word, str) else word
        if (
            not isinstance(number, SupportsIndex)
            or isinstance(number, bool)
            or not 0 <= index(number) < self.vocab_size
        ):
            raise ValueError(f"stop must be words of the vocabulary or numbers below {self.vocab_size}, got {word!r}")
        return index(number)

    def _need_vocabulary(self) -> Vocabulary:
        if self.vocabulary is None:
            raise ValueError("text needs a model with a vocabulary, and this one has none: use numbers of words")
        return self.vocabulary

    def _to_ids(self, name: str, ids: Tensor, also: int | None = None) -> Tensor:
        """Numbers of words (B, T), checked: below `vocab_size`, or `also`."""
        if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            kind = str(ids.dtype) if isinstance(ids, Tensor) else type(ids).__name__
            raise TypeError(f"{name} must be integers, got {kind}")
        if ids.dim() != 2 or 0 in ids.shape:
            raise ValueError(f"{name} must be (B, T) and not empty, got shape {tuple(ids.shape)}")
        ids = ids.long()
        if ids.device.type == "cpu" and not torch.compiler.is_compiling():  # elsewhere, looking would make it wait
            allowed = (ids >= 0) & (ids < self.vocab_size)
            wrong = ids[~allowed if also is None else ~allowed & (ids != also)]
            if len(wrong):
                raise ValueError(f"{name} must lie in 0 .. {self.vocab_size - 1}, got {int(wrong[0])}")
        return ids
