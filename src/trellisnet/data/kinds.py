"""Which kind of data every dataset is. Imports nothing heavy: a configuration is read before torch is loaded."""

from __future__ import annotations

from typing import Literal

# text: one long stream of words or characters. tokens: sequences of tokens with an answer at some steps.
# sequences: sequences of numbers with labels or numbers as answers. pairs: sentences and their translations.
Kind = Literal["text", "tokens", "sequences", "pairs"]

KINDS: dict[str, Kind] = {
    "ptb-word": "text",
    "ptb-char": "text",
    "wikitext-2": "text",
    "wikitext-103": "text",
    "seq-mnist": "sequences",
    "perm-mnist": "sequences",
    "seq-cifar10": "sequences",
    "music": "sequences",
    "copy-memory": "tokens",
    "adding": "sequences",
    "python-library": "text",
    "text": "text",
    "series": "sequences",
    "ts": "sequences",
    "multi30k": "pairs",
    "translation": "pairs",
}
