"""Scores of texts by a language model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from trellisnet.models.evaluation import perplexity
from trellisnet.models.language import LanguageModel
from trellisnet.vocabulary import Vocabulary


def read_texts(inputs: Any, per: str) -> list[str]:
    """A list of texts, the lines of a file, or the file as one text.

    Raises:
        TypeError, FileNotFoundError, ValueError: if `inputs` is neither, or the file is missing, empty or not UTF-8.
    """
    if isinstance(inputs, (list, tuple)) and all(isinstance(text, str) for text in inputs):
        return list(inputs)
    if not isinstance(inputs, (str, Path)):
        raise TypeError(f"inputs must be the path of a text file or a list of texts, got {type(inputs).__name__}")
    path = Path(inputs).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: not found; it must be a text file")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: must be UTF-8: {error}") from None
    if not text:
        raise ValueError(f"{path}: is empty")
    return [text] if per == "document" else text.removesuffix("\n").split("\n")


def score_texts(model: LanguageModel, texts: list[str], batch_size: int) -> dict[str, list[Any]]:
    """Columns with one row per text: tokens, log-probability in nats, perplexity and bits per token.

    Each text is scored as if it followed an end of line. If the vocabulary has none, the first token is not predicted.
    A text without tokens to predict has no perplexity.
    """
    vocabulary = model.vocabulary
    if vocabulary is None:
        raise ValueError("texts need a model with a vocabulary, and this one has none")
    before = _end_of_line(vocabulary)
    encoded = [before + _encoded(vocabulary, number, text) for number, text in enumerate(texts, start=1)]
    found: list[tuple[int, float]] = [(0, 0.0)] * len(texts)
    # sort by length, because the computation on padding is wasted
    order = sorted((i for i, ids in enumerate(encoded) if len(ids) > 1), key=lambda i: len(encoded[i]))
    for start in range(0, len(order), batch_size):
        some = order[start : start + batch_size]
        longest = len(encoded[some[-1]])
        ids = torch.tensor([encoded[i] + [0] * (longest - len(encoded[i])) for i in some])
        for i, log_prob in zip(some, model.score(ids).log_prob.double().cpu(), strict=True):
            count = len(encoded[i]) - 1
            found[i] = count, log_prob[:count].sum().item()
    return {
        "tokens": [count for count, _ in found],
        "log_probability": [total for _, total in found],
        "perplexity": [perplexity(-total / count) if count else None for count, total in found],
        "bits": [-total / count / math.log(2) if count else None for count, total in found],
    }


def _encoded(vocabulary: Vocabulary, number: int, text: str) -> list[int]:
    try:
        return vocabulary.encode(text)
    except ValueError as error:
        raise ValueError(f"text {number:,}: {error}") from None


def _end_of_line(vocabulary: Vocabulary) -> list[int]:
    try:
        ids = vocabulary.encode("\n")
    except ValueError:
        return []
    return ids if vocabulary.decode(ids) == "\n" else []
