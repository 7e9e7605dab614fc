"""What a language model does with text: write it and judge it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trellisnet.core.checks import positive_int
from trellisnet.core.state import TrellisState
from trellisnet.core.trellis import TrellisNet
from trellisnet.models.beam import beam_search
from trellisnet.models.dropout import embed
from trellisnet.models.evaluation import ContinuousCache, DynamicEvaluation, Score, score
from trellisnet.models.generation import NextWords, Sampling, check_penalty, stream
from trellisnet.models.heads import Head
from trellisnet.models.pretrained import Pretrained
from trellisnet.vocabulary import Vocabulary

Prompts = Tensor | str | Sequence[str] | Sequence[Sequence[int]] | Sequence[Tensor]


@dataclass(frozen=True, eq=False)
class Features:
    """What the head reads, before output dropout."""

    output: Tensor  # (T, B, D)
    state: TrellisState | None
    aux: Tensor | None = None  # (levels, T, B, D)


class TextMethods(Pretrained):
    """Generation and scoring, for a model that has the parts named here."""

    net: TrellisNet
    embedding: nn.Embedding
    head: Head
    vocabulary: Vocabulary | None
    vocab_size: int
    features: Callable[..., Features]

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
            repetition_penalty: multiply the log-probability of words that are in the text already.
            seed: for the same words every time.
            beams: hypotheses that a beam search keeps of every text.
            length_penalty: a hypothesis counts as the sum of its log-probabilities over its length to this power.
            stop: words that end a text (numbers, or words of the vocabulary).

        Returns:
            (B, T + new) for (B, T), where texts that ended early are filled up with their stop word; a list of lists
            for a list of sequences; a string for a string, and a list of strings for several.
        """
        rows, ends = self._read_prompts(prompts), self._read_stop(stop)
        positive_int("max_new_tokens", max_new_tokens)
        sampling = Sampling(temperature, top_k, top_p, repetition_penalty, seed)
        if beams is None:
            if length_penalty:
                raise ValueError(f"length_penalty belongs to a beam search: got {length_penalty} without beams")
            new: list[list[int]] = [[] for _ in rows]
            for words in stream(self._reader(), rows, max_new_tokens, sampling, ends, self.embedding.weight.device):
                for text, word in zip(new, words, strict=True):
                    text.extend([] if word is None else [word])
        else:
            if not sampling.greedy:
                raise ValueError("beams search and draw nothing: temperature, top_k, top_p and seed must be None")
            check_penalty(repetition_penalty)
            found = beam_search(
                self._reader(),
                rows,
                max_new_tokens,
                positive_int("beams", beams),
                length_penalty,
                repetition_penalty,
                ends,
                self.embedding.weight.device,
            )
            new = [list(words) for words in found]
        return self._in_form_of(prompts, [[*row, *words] for row, words in zip(rows, new, strict=True)])

    def stream(
        self, prompts: Prompts, max_new_tokens: int, *, stop: int | str | Iterable[int | str] = (), **sampling: Any
    ) -> Iterator[list[int | None]]:
        """The words of `generate` as they are chosen: a list a step, with one word a prompt, or None after its end.

        The weights are those of the moment when the stream starts. Options as those of `generate`, without beams.
        """
        rows, ends = self._read_prompts(prompts), self._read_stop(stop)
        positive_int("max_new_tokens", max_new_tokens)
        options = Sampling(**sampling)
        return stream(self._reader(), rows, max_new_tokens, options, ends, self.embedding.weight.device)

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
        text: str | Tensor | Sequence[int],
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
        many = isinstance(text, Tensor) and text.dim() == 2
        ids = text if many else torch.tensor([self._read_prompt("text", text)], device=self.embedding.weight.device)
        assert isinstance(ids, Tensor)
        self._check_ids("text", ids)
        if ids.shape[1] < 2:
            raise ValueError("text must have at least two words: the first is only read")
        return score(self, ids, positive_int("window", window), cache, dynamic)

    def _in_form_of(self, prompts: Prompts, texts: list[list[int]]) -> Any:
        if isinstance(prompts, Tensor):
            longest = max(map(len, texts))
            filled = [text + text[-1:] * (longest - len(text)) for text in texts]
            return torch.tensor(filled, dtype=prompts.dtype, device=prompts.device)
        if isinstance(prompts, str):
            return self._need_vocabulary().decode(texts[0])
        if isinstance(prompts[0], str):
            return [self._need_vocabulary().decode(text) for text in texts]
        return texts

    def _reader(self) -> NextWords:
        """The model as generation sees it: with the weights as they are now, normalised once."""
        net = self.net
        if net.kernel.weight_norm and net.groups is None:
            net = net.densify().eval()

        def next_words(
            ids: Tensor, state: TrellisState | None, lengths: Sequence[int] | None
        ) -> tuple[Tensor, TrellisState]:
            with self.reading():
                output, after = net(embed(ids.t(), self.embedding.weight), state, lengths=lengths)
                last = output[-1] if lengths is None else output[[n - 1 for n in lengths], range(len(lengths))]
                return self.head.log_prob(last), after

        return next_words

    def _read_prompts(self, prompts: Prompts) -> list[list[int]]:
        """Texts as lists of numbers."""
        if isinstance(prompts, Tensor):
            self._check_ids("prompts", prompts)
            rows: list[list[int]] = prompts.tolist()
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
        elif not isinstance(text, (list, tuple, Tensor)):
            raise TypeError(f"{name} must be text or a sequence of integers, got {text!r}")
        if not len(text):
            raise ValueError(f"{name} must not be empty: there is nothing to go on from")
        self._check_ids(name, torch.as_tensor(text).unsqueeze(0))
        return [int(word) for word in text]

    def _read_stop(self, stop: int | str | Iterable[int | str]) -> frozenset[int]:
        words = [stop] if isinstance(stop, (int, str)) else list(stop)
        numbers = [self._need_vocabulary().index.get(word) if isinstance(word, str) else word for word in words]
        for word, number in zip(words, numbers, strict=True):
            if not isinstance(number, int) or not 0 <= number < self.vocab_size:
                raise ValueError(
                    f"stop must be words of the vocabulary or numbers below {self.vocab_size}, got {word!r}"
                )
        return frozenset(number for number in numbers if number is not None)

    def _need_vocabulary(self) -> Vocabulary:
        if self.vocabulary is None:
            raise ValueError("text needs a model with a vocabulary, and this one has none: use numbers of words")
        return self.vocabulary

    def _check_ids(self, name: str, ids: Tensor, also: int = 0) -> None:
        if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.dtype == torch.bool:
            kind = str(ids.dtype) if isinstance(ids, Tensor) else type(ids).__name__
            raise TypeError(f"{name} must be integers, got {kind}")
        if ids.dim() != 2 or 0 in ids.shape:
            raise ValueError(f"{name} must be (B, T) and not empty, got shape {tuple(ids.shape)}")
        if ids.device.type == "cpu" and not torch.compiler.is_compiling():  # elsewhere, looking would make it wait
            wrong = ids[((ids < 0) | (ids >= self.vocab_size)) & (ids != also)]
            if len(wrong):
                raise ValueError(f"{name} must lie in 0 .. {self.vocab_size - 1}, got {int(wrong[0])}")
