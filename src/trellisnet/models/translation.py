"""Translate sentences with beam search, in batches of similar length."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from trellisnet.core.checks import non_negative, positive_int
from trellisnet.models.beam import beam_search
from trellisnet.models.generation import NextToken
from trellisnet.models.pretrained import Pretrained
from trellisnet.models.reading_head import Source
from trellisnet.vocabulary import Vocabulary

LINE_END = "\n"  # begins and ends every sentence
ROOM = 10  # tokens that a translation may be longer than 1.5 times its source


def end_of_sentence(vocabulary: Vocabulary) -> int:
    """Return the id of the token that ends a line.

    Raises:
        ValueError: a line end is not one token of the vocabulary.
    """
    ids = vocabulary.encode(LINE_END)
    if len(ids) != 1:
        raise ValueError(f"the vocabulary must have one token for the end of a line, got {len(ids)}")
    return ids[0]


def encode_sentence(vocabulary: Vocabulary, text: str) -> list[int]:
    """Return the tokens of a sentence, blanks at its ends dropped, and the line end."""
    return vocabulary.encode(text.strip() + LINE_END)


class TranslationMethods(Pretrained):
    """What a sequence-to-sequence model offers on text."""

    source_vocabulary: Vocabulary | None
    target_vocabulary: Vocabulary | None
    source_embedding: nn.Embedding
    start: int

    @abstractmethod
    def encode(self, source: Tensor, lengths: Sequence[int] | Tensor | None = None) -> Source:
        """Read source sentences (B, S)."""

    @abstractmethod
    def _next_token(self, memory: Source) -> NextToken: ...

    def translate(
        self,
        sources: Sequence[Any],
        *,
        beams: int = 4,
        length_penalty: float = 1.0,
        max_length: int | None = None,
        batch_size: int = 32,
        end: int | None = None,
    ) -> Any:
        """Translate sentences: the most probable translation that a beam search finds.

        Args:
            sources: texts, for a model with vocabularies, or token ids with the line end as the last. An empty text
                stays empty.
            beams: number of live hypotheses; 1 is greedy.
            length_penalty: hypotheses are ranked by their log-probability divided by length ** length_penalty.
            max_length: maximum number of tokens of a translation; default 1.5 times its source and 10 more.
            batch_size: sentences that are translated together.
            end: id of the token that ends a translation; default that of the target vocabulary's line end.

        Returns:
            Texts, or lists of token ids without the end, in the order of `sources`.
        """
        positive_int("beams", beams)
        positive_int("batch_size", batch_size)
        non_negative("length_penalty", length_penalty)
        if max_length is not None:
            positive_int("max_length", max_length)
        if isinstance(sources, str) or not isinstance(sources, Sequence):
            raise TypeError(f"sources must be a list of sentences, got {type(sources).__name__}")
        texts = bool(sources) and isinstance(sources[0], str)
        ids = [self._source_ids(i, source) for i, source in enumerate(sources)]
        stop = self._end() if end is None else positive_int("end", end, minimum=0)
        results: list[list[int]] = [[] for _ in sources]
        order = sorted((i for i, row in enumerate(ids) if row), key=lambda i: len(ids[i]), reverse=True)
        for first in range(0, len(order), batch_size):
            some = order[first : first + batch_size]
            limits = [int(1.5 * len(ids[i])) + ROOM if max_length is None else max_length for i in some]
            found = self._translate_batch([ids[i] for i in some], beams, length_penalty, limits, stop)
            for i, tokens in zip(some, found, strict=True):
                results[i] = [token for token in tokens if token != stop]
        if not texts:
            return results
        assert self.target_vocabulary is not None
        return [self.target_vocabulary.decode(tokens).strip() for tokens in results]

    def _translate_batch(
        self, rows: list[list[int]], beams: int, length_penalty: float, limits: list[int], stop: int
    ) -> list[tuple[int, ...]]:
        device = next(self.parameters()).device
        source = pad_sequence([torch.tensor(row, device=device) for row in rows], batch_first=True)
        with self.reading():
            memory = self.encode(source, [len(row) for row in rows])
        prompts = [[self.start]] * len(rows)
        return beam_search(self._next_token(memory), prompts, limits, beams, length_penalty, 1.0, frozenset([stop]))

    def _source_ids(self, i: int, source: Any) -> list[int]:
        if isinstance(source, str):
            if self.source_vocabulary is None or self.target_vocabulary is None:
                raise ValueError("text needs a model with vocabularies, and this one has none: use token ids")
            return encode_sentence(self.source_vocabulary, source) if source.strip() else []
        size = len(self.source_embedding.weight)
        try:
            return [positive_int(f"a token of sources[{i}]", token, 0, size - 1) for token in source]
        except TypeError:
            raise TypeError(f"sources[{i}] must be text or token ids, got {source!r}") from None

    def _end(self) -> int:
        if self.target_vocabulary is None:
            raise ValueError("end must be given for a model without a vocabulary, got None")
        return end_of_sentence(self.target_vocabulary)
