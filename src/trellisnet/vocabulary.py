"""The words a language model knows, and how text is cut into them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from trellisnet.core.checks import one_of
from trellisnet.files import replacing

FILE = "vocabulary.json"
UNKNOWN = "<unk>"


class Vocabulary:
    """Numbers for words or characters.

    Args:
        tokens: the words in the order of their numbers.
        kind: "characters", or "words", which are separated by white space.

    >>> vocabulary = Vocabulary(["<unk>", "a", "rose", "is"], "words")
    >>> vocabulary.encode("a rose is a flower")
    [1, 2, 3, 1, 0]
    >>> vocabulary.decode([1, 2, 3])
    'a rose is'
    """

    def __init__(self, tokens: Sequence[str], kind: str = "words") -> None:
        self.tokens = list(tokens)
        self.kind = one_of("kind", kind, ("characters", "words"))
        self.index = {token: i for i, token in enumerate(self.tokens)}
        if len(self.index) != len(self.tokens):
            double = next(token for i, token in enumerate(self.tokens) if self.index[token] != i)
            raise ValueError(f"tokens must differ from each other, got {double!r} more than once")

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """The numbers of a text's words; what is not in the vocabulary becomes `<unk>`, if that is."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a string, got {type(text).__name__}")
        unknown = self.index.get(UNKNOWN)
        parts: Iterable[str] = text if self.kind == "characters" else text.split()
        numbers = [(part, self.index.get(part, unknown)) for part in parts]
        missing = sorted({part for part, number in numbers if number is None})
        if missing:
            raise ValueError(
                f"text has {self.kind} that are not in the vocabulary: {', '.join(map(repr, missing[:5]))}"
            )
        return [number for _, number in numbers if number is not None]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some numbers."""
        between = "" if self.kind == "characters" else " "
        return between.join(self.tokens[i] for i in ids)

    def save(self, folder: Path | str) -> None:
        """Write `vocabulary.json` into a folder."""
        with replacing(Path(folder) / FILE) as (path,):
            path.write_text(json.dumps({"kind": self.kind, "tokens": self.tokens}, ensure_ascii=False), "utf-8")

    @classmethod
    def load(cls, folder: Path | str) -> Vocabulary:
        """Read what `save` wrote."""
        path = Path(folder) / FILE
        try:
            content = json.loads(path.read_text("utf-8"))
            return cls(content["tokens"], content["kind"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a vocabulary: {error}") from None
