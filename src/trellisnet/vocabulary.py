"""The tokens of a text; conversion of text to token ids and back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trellisnet.core.checks import one_of
from trellisnet.extras import require
from trellisnet.files import replacing

END_OF_LINE = "<eos>"
UNKNOWN = "<unk>"
KINDS = ("characters", "words", "bpe")
FILE_NAME = "vocabulary.json"
WORD = re.compile(r"[^\t\n\v\f\r ]+")  # only ASCII white space separates words: a word can contain other blanks


class Vocabulary:
    r"""The tokens of a text by id, usually the most frequent first.

    Characters: every character is a token, also the end of a line. Words: every word between white space is a token,
    and `<eos>` ends a line. BPE: tokens are pieces of words, learned from a text and built by `merges`.
    A token that is not in the vocabulary is encoded as `<unk>` if the vocabulary has that, and is an error otherwise.

    Args:
        tokens: the tokens in the order of their ids; all different.
        kind: "characters", "words" or "bpe".
        merges: for "bpe": the pairs of pieces to join, in order.

    >>> words = Vocabulary(["the", "<eos>", "cat", "<unk>"], "words")
    >>> words.encode("the cat\nthe dog\n")
    [0, 2, 1, 0, 3, 1]
    >>> words.decode([0, 2, 1, 0])
    'the cat\nthe'
    """

    def __init__(self, tokens: Iterable[str], kind: str, merges: Iterable[Sequence[str]] | None = None) -> None:
        self.tokens = list(tokens)
        one_of("kind", kind, KINDS)
        if (kind == "bpe") != (merges is not None):
            raise ValueError(f"merges belong to kind 'bpe', got kind {kind!r} and merges {merges!r}")
        self.kind = kind
        self.merges = None if merges is None else [(left, right) for left, right in merges]
        if wrong := [token for token in self.tokens if not isinstance(token, str)]:
            raise TypeError(f"tokens must be strings, got {wrong[0]!r}")
        self.index = {token: i for i, token in enumerate(self.tokens)}
        if len(self.index) < len(self.tokens):
            repeated = next(token for i, token in enumerate(self.tokens) if self.index[token] != i)
            raise ValueError(f"tokens must differ, got {repeated!r} more than once")
        self._tokenizer: Any = None

    def __len__(self) -> int:
        return len(self.tokens)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return (self.tokens, self.kind, self.merges) == (other.tokens, other.kind, other.merges)

    __hash__ = None  # type: ignore[assignment]  # lists are mutable

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} {self.kind})"

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text.

        Raises:
            ValueError: the vocabulary has neither a token of the text nor `<unk>`.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a string, got {type(text).__name__}")
        if self.kind == "bpe":
            lines = text.splitlines(keepends=True)
            return [i for line in self._bpe().encode_batch(lines) for i in line.ids]
        tokens = text if self.kind == "characters" else _words(text)
        unknown = self.index.get(UNKNOWN)
        ids = [self.index.get(token, unknown) for token in tokens]
        if None in ids:
            at = ids.index(None)
            raise ValueError(f"text must be of the vocabulary's {self.kind}, got {tokens[at]!r} at position {at}")
        return [i for i in ids if i is not None]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids.

        Raises:
            ValueError: an id is out of range.
        """
        ids = [int(i) for i in ids]
        for i in ids:
            if not 0 <= i < len(self.tokens):
                raise ValueError(f"ids must be in [0, {len(self.tokens)}), got {i}")
        if self.kind == "bpe":
            return str(self._bpe().decode(ids))
        tokens = [self.tokens[i] for i in ids]
        if self.kind == "characters":
            return "".join(tokens)
        lines = " ".join("\n" if token == END_OF_LINE else token for token in tokens)
        return lines.replace(" \n", "\n").replace("\n ", "\n")

    def save(self, folder: str | Path) -> None:
        """Write `vocabulary.json` to a folder."""
        with replacing(Path(folder) / FILE_NAME) as (file,):
            file.write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        """Return the content of the file that `save` writes."""
        content: dict[str, object] = {"kind": self.kind, "tokens": self.tokens}
        if self.merges is not None:
            content["merges"] = self.merges
        return json.dumps(content, ensure_ascii=False, indent=0)

    @classmethod
    def load(cls, folder: str | Path, name: str = FILE_NAME) -> Vocabulary:
        """Read the vocabulary of a folder, by default from `vocabulary.json`.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not a vocabulary.
        """
        path = Path(folder) / name
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(content["tokens"], content["kind"], content.get("merges"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: not a vocabulary: {error!r}") from error

    def _bpe(self) -> Any:
        if self._tokenizer is None:
            assert self.merges is not None
            self._tokenizer = make_tokenizer(self.index, self.merges)
        return self._tokenizer

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_tokenizer": None}  # rebuilt on first use


def require_tokenizers() -> Any:
    """Import and return the `tokenizers` package; an ImportError that names the extra if it is not installed."""
    return require("tokenizers", "text", "kind 'bpe'")


def make_tokenizer(index: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> Any:
    """Build a byte-level BPE tokenizer of the `tokenizers` package; it can encode any text."""
    tokenizers = require_tokenizers()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=dict(index), merges=list(merges)))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def _words(text: str) -> list[str]:
    return WORD.findall(text.replace("\n", f" {END_OF_LINE} "))
