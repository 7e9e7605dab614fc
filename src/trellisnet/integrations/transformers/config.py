"""The configuration: the `config.json` of this package, which transformers reads and writes as well."""

from __future__ import annotations

from typing import Any, ClassVar

from transformers import PreTrainedConfig

from trellisnet.models.language import MODEL_TYPE, LanguageModel
from trellisnet.models.pretrained import VERSION

CODE = "modeling_trellisnet"  # the file beside the weights that imports this package, for `trust_remote_code=True`
AUTO_MAP = {"AutoConfig": f"{CODE}.TrellisNetConfig", "AutoModelForCausalLM": f"{CODE}.TrellisNetForCausalLM"}


class TrellisNetConfig(PreTrainedConfig):  # type: ignore[misc]  # transformers is not type-checked here
    """The description of a language model of this package.

    It has no defaults of its own: `TrellisNetForCausalLM.from_lm` makes one from a model.

    Args:
        format_version: version of the format of the folder.
        model: name of the model's class, such as "TrellisLM".
        arguments: the arguments of its constructor: `lm.config`.

    Raises:
        ValueError: the folder is of a version that this package cannot read, or describes no language model.
    """

    model_type = MODEL_TYPE
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]

    # None, because transformers does not save values that equal the default
    format_version: int | None = None
    model: str | None = None
    arguments: dict[str, Any] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.arguments is not None:
            saved = {"format_version": self.format_version, "model": self.model, "arguments": self.arguments}
            where = kwargs.get("name_or_path") or "the configuration"
            version, _, _ = LanguageModel._check_config(saved, where)
            if version != VERSION:
                raise ValueError(
                    f"{where} has format_version {version}, and transformers reads {VERSION} only: load the folder "
                    "with TrellisLM.from_pretrained and save it again"
                )
            kwargs["auto_map"] = AUTO_MAP
        super().__post_init__(**kwargs)

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoConfig") -> None:
        """Do nothing: `AUTO_MAP` names the code already; transformers would copy this file instead."""

    @property
    def vocab_size(self) -> int:
        """Number of tokens, with the pad token, which the model never predicts."""
        return self.pad_token_id + 1

    @property
    def pad_token_id(self) -> int:
        """The id after those of the vocabulary."""
        return int((self.arguments or {}).get("vocab_size", 0))

    @property
    def hidden_size(self) -> int | None:
        """Width of the body, if it has that option."""
        return self._body_option("hidden_size")  # type: ignore[no-any-return]

    @property
    def num_hidden_layers(self) -> int | None:
        """Depth of the body, if it has that option."""
        return self._body_option("num_layers")  # type: ignore[no-any-return]

    @property
    def tie_word_embeddings(self) -> bool:
        """True, so that transformers respects `_tied_weights_keys` of the model, which lists what is tied."""
        return True

    def _body_option(self, name: str) -> Any:
        arguments = self.arguments or {}
        body = arguments.get("body")
        return (body if isinstance(body, dict) else arguments).get(name)
