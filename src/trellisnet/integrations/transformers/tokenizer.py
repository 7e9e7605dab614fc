"""The tokenizer: a `Vocabulary` and a pad token. Text becomes the same ids as in this package."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizer

from trellisnet.integrations.transformers.config import CODE
from trellisnet.vocabulary import FILE_NAME, UNKNOWN, Vocabulary


class TrellisNetTokenizer(PreTrainedTokenizer):  # type: ignore[misc]  # transformers is not type-checked here
    """A vocabulary of characters, words or BPE pieces as a tokenizer of transformers.

    The pad token follows the vocabulary. It never stands for a token of the text, and the text never contains it: the
    characters `<pad>` in a text are encoded as any others.

    Args:
        vocabulary_file: the `vocabulary.json` of a model's folder.
        vocabulary: the vocabulary itself, in place of a file.
        kwargs: options of transformers' tokenizers.
    """

    vocab_files_names = {"vocabulary_file": FILE_NAME}  # noqa: RUF012
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012
    padding_side = "left"

    def __init__(
        self, vocabulary_file: str | None = None, *, vocabulary: Vocabulary | None = None, **kwargs: Any
    ) -> None:
        if (vocabulary_file is None) == (vocabulary is None):
            raise ValueError(f"the tokenizer needs the {FILE_NAME} of a model that has one, or a vocabulary")
        if vocabulary is None:
            vocabulary = Vocabulary.load(Path(str(vocabulary_file)).parent)
        self.vocabulary = vocabulary
        pad = "<pad>"
        while pad in self.vocabulary.index:
            pad = f"<{pad}>"
        fixed = {"pad_token": pad, "split_special_tokens": True, "clean_up_tokenization_spaces": False}
        auto_map = {"AutoTokenizer": [f"{CODE}.TrellisNetTokenizer", None]}
        super().__init__(**{**kwargs, **fixed, "auto_map": auto_map})

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoTokenizer") -> None:
        """Do nothing: `auto_map` names the code already; transformers would copy this file instead."""

    @property
    def vocab_size(self) -> int:
        """Number of tokens without the pad token."""
        return len(self.vocabulary)

    def get_vocab(self) -> dict[str, int]:
        return {**self.vocabulary.index, **self.added_tokens_encoder}

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        return [self.vocabulary.tokens[i] for i in self.vocabulary.encode(text)]

    def _convert_token_to_id(self, token: str) -> int | None:
        return self.vocabulary.index.get(token, self.vocabulary.index.get(UNKNOWN))

    def _convert_id_to_token(self, index: int) -> str:
        return self.vocabulary.tokens[index]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return self.vocabulary.decode(self.vocabulary.index[token] for token in tokens)

    def _decode(
        self,
        token_ids: int | list[int],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        **kwargs: Any,
    ) -> str:
        if clean_up_tokenization_spaces:
            raise ValueError("clean_up_tokenization_spaces must be False: the text would no longer be that of the ids")
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        if skip_special_tokens:
            return self.vocabulary.decode(i for i in ids if i != self.pad_token_id)
        runs = groupby(ids, lambda i: i == self.pad_token_id)
        return "".join(
            self.pad_token * len(list(run)) if padding else self.vocabulary.decode(run) for padding, run in runs
        )

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str]:
        if filename_prefix is not None:
            raise ValueError(f"filename_prefix must be None: models read {FILE_NAME}, got {filename_prefix!r}")
        self.vocabulary.save(save_directory)
        return (str(Path(save_directory) / FILE_NAME),)
