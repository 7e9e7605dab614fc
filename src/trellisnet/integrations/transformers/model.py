"""The model: a `LanguageModel` behind the interface of transformers."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast
from typing_extensions import Self

from trellisnet.files import replacing
from trellisnet.integrations.transformers.cache import StateCache
from trellisnet.integrations.transformers.card import CODE_TEXT, model_card
from trellisnet.integrations.transformers.config import CODE, TrellisNetConfig
from trellisnet.integrations.transformers.padding import Columns, Memory, read
from trellisnet.models.body import BodyOutput, State, for_inference, needs_state, run_body
from trellisnet.models.dropout import masked
from trellisnet.models.heads import IGNORED
from trellisnet.models.language import LanguageModel


class TrellisNetForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[misc]  # transformers is not type-checked
    """A language model of this package as a model of transformers.

    Its parameters have the names that they have in `lm`, so that both libraries read the same folder.

    Args:
        config: the description of the model.
        lm: the model itself, with its weights; default a new one.
        changes: arguments of the constructor of `lm` that replace those of `config`, such as a dropout.

    Attributes:
        lm: the `LanguageModel`, with the same parameters.
    """

    config_class = TrellisNetConfig
    _is_stateful = True  # a state cannot be cut back to an earlier token
    _supports_context_parallel = False
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True  # `num_items_in_batch`

    lm: LanguageModel

    def __init__(self, config: TrellisNetConfig, lm: LanguageModel | None = None, **changes: Any) -> None:
        super().__init__(config)
        if lm is None:
            where = config.name_or_path or "the configuration"
            _, kind, arguments = LanguageModel._check_config(_saved(config), where)
            lm = kind._build({**arguments, **changes}, None, None, where)
            config.arguments = lm._described()["arguments"]
        self.embedding, self.net, self.head = lm.embedding, lm.net, lm.head
        self.__dict__["lm"] = lm  # not as a submodule, which would give every parameter a second name
        first: dict[Tensor, str] = {}
        named = self.named_parameters(remove_duplicate=False)
        self._tied_weights_keys = {
            name: source for name, each in named if (source := first.setdefault(each, name)) != name
        }
        self.generation_config.pad_token_id = config.pad_token_id
        self.post_init()

    @classmethod
    def from_lm(cls, lm: LanguageModel) -> Self:
        """Return a model with the parameters of `lm`, not a copy: training one trains the other."""
        if not isinstance(lm, LanguageModel):
            raise TypeError(f"lm must be a LanguageModel, got {type(lm).__name__}")
        described = {name: value for name, value in lm._described().items() if name != "model_type"}
        return cls(TrellisNetConfig(**described), lm).train(lm.training)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: StateCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: int | Tensor | None = None,
        return_dict: bool | None = None,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Read text; return the logits of the next token at every column, and the loss of `labels`.

        Args:
            input_ids: (B, T), token ids; the pad token marks padding.
            attention_mask: (B, T) or longer, of which the last T columns count: 0 also marks padding, on any side.
            past_key_values: what the rows have read before.
            labels: (B, T), `input_ids` or -100 for tokens whose prediction does not count: a token is compared with the
                prediction at the token before it. In training mode the loss includes the model's regularisers, and
                there are no logits: those of a large vocabulary need more memory than the loss.
            use_cache: return what the rows have read; default in evaluation mode without labels.
            logits_to_keep: return the logits of the last n columns only, 0: all; or those of the given columns.
            num_items_in_batch: divide the sum of the losses by this number; default the number of labels that count.
            return_dict: False: return a tuple.
        """
        pad = self.config.pad_token_id
        ids = self.lm._to_ids("input_ids", input_ids, pad)
        valid = ids != pad
        if attention_mask is not None:
            if attention_mask.dim() != 2 or len(attention_mask) != len(ids) or attention_mask.shape[1] < ids.shape[1]:
                expected, got = tuple(ids.shape), tuple(attention_mask.shape)
                raise ValueError(f"attention_mask must be {expected} as input_ids, or longer, got shape {got}")
            valid = valid & attention_mask[:, -ids.shape[1] :].bool()
        if past_key_values is not None and not isinstance(past_key_values, StateCache):
            raise TypeError(f"past_key_values must be a StateCache or None, got {type(past_key_values).__name__}")
        if use_cache is None:
            use_cache = labels is None and not self.training
        cache = past_key_values if past_key_values is not None else StateCache()
        columns = Columns(valid)
        before = cache.layer.memory
        out, memory = self._read(columns.pack(ids, 0), columns, before, labels is not None)
        loss = logits = None
        if labels is not None:
            loss = self._loss(out, columns, labels, num_items_in_batch)
        if labels is None or not self.training:
            features = columns.unpack(out.output, None if before is None else before.output, logits_to_keep)
            logits = self._logits(features)
        if use_cache or past_key_values is not None:
            needs_state(self.net, memory.state)
            cache.layer.store(memory, ids.shape[1])
        result = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache if use_cache else None)
        return result.to_tuple() if return_dict is False else result

    def _read(self, ids: Tensor, columns: Columns, memory: Memory | None, for_loss: bool) -> tuple[BodyOutput, Memory]:
        body = self.__dict__.get("_inference_net", self.net)
        with_aux = for_loss and memory is None and self.training and bool(self.lm.aux_weight)

        def reader(ids: Tensor, state: State, lengths: list[int] | None) -> BodyOutput:
            return run_body(body, self.lm.vectors(ids), state, lengths=lengths, aux=with_aux)

        return read(reader, ids, columns, memory)

    def _loss(self, out: BodyOutput, columns: Columns, labels: Tensor, num_items: int | Tensor | None) -> Tensor:
        if labels.shape != columns.valid.shape:
            expected, got = tuple(columns.valid.shape), tuple(labels.shape)
            raise ValueError(f"labels must have the shape of input_ids, {expected}, got {got}")
        following = columns.pack(
            self.lm._to_ids("labels", labels.masked_fill(~columns.valid, IGNORED), IGNORED), IGNORED
        )
        targets = nn.functional.pad(following[:, 1:], (0, 1), value=IGNORED).t()
        loss, _ = self.lm._loss(out, targets)
        return loss if num_items is None else loss * (targets != IGNORED).sum() / num_items

    def _logits(self, features: Tensor) -> Tensor:
        """Log-probabilities (B, T, V + 1) of features (T, B, D); that of the pad token is minus infinity."""
        dropped = masked(features, self.lm._output_mask(features))
        log_prob = self.lm.head.log_prob(dropped).transpose(0, 1)
        return nn.functional.pad(log_prob, (0, 1), value=-torch.inf)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Continue texts; all options are those of transformers."""
        if not self.training:
            self.__dict__["_inference_net"] = for_inference(self.net)  # weight norm is computed once for all tokens
        try:
            return super().generate(*args, **kwargs)
        finally:
            self.__dict__.pop("_inference_net", None)

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        if generation_config.cache_implementation is not None:
            given = generation_config.cache_implementation
            raise ValueError(f"cache_implementation must be None: the cache is the state of the model, got {given!r}")
        if generation_config.use_cache is not False and model_kwargs.get("past_key_values") is None:
            model_kwargs["past_key_values"] = StateCache()
            return
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode, of `lm` too."""
        super().train(mode)
        self.lm.train(mode)
        return self

    @property
    def gradient_checkpointing(self) -> bool:
        """Whether the backward pass recomputes the gates: the option `memory` of a trellis."""
        return getattr(self.net, "memory", None) == "recompute"

    def _set_gradient_checkpointing(
        self, enable: bool = True, gradient_checkpointing_func: Any = None, every_n_layers: int = 1
    ) -> None:
        if not hasattr(self.net, "memory"):
            raise ValueError(
                f"gradient checkpointing needs a body with the option memory, got {type(self.net).__name__}"
            )
        if every_n_layers != 1:
            raise ValueError(f"every_n_layers must be 1: a trellis recomputes all layers or none, got {every_n_layers}")
        self.net.memory = "recompute" if enable else "store"

    def get_input_embeddings(self) -> nn.Module:
        """Return the embedding, without the pad token."""
        return self.embedding

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> nn.Module:
        """Return the embedding. The number of tokens is that of the model: the pad token needs no vector.

        Raises:
            ValueError: `new_num_tokens` is another number.
        """
        allowed = (None, self.config.vocab_size, self.config.pad_token_id)
        if new_num_tokens not in allowed:
            expected = f"{allowed[1]} (or {allowed[2]}, without the pad token)"
            raise ValueError(f"new_num_tokens must be {expected}, the model's vocabulary, got {new_num_tokens}")
        return self.embedding

    def save_pretrained(self, save_directory: str | PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Write the model to a folder that `TrellisLM.from_pretrained` reads as well; arguments as in transformers.

        A model card `README.md` is added if there is none.
        """
        super().save_pretrained(save_directory, *args, **kwargs)
        folder = Path(save_directory)
        texts = {folder / f"{CODE}.py": CODE_TEXT, folder / "README.md": model_card(self.lm)}
        texts = {path: text for path, text in texts.items() if path.suffix == ".py" or not path.exists()}
        with replacing(*texts) as files:
            for file, text in zip(files, texts.values(), strict=True):
                file.write_text(text, encoding="utf-8")

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoModelForCausalLM") -> None:
        """Do nothing: `auto_map` names the code already; transformers would copy this file instead."""

    def _init_weights(self, module: nn.Module) -> None:
        """Do nothing: the model initialises itself."""

    def _initialize_missing_keys(self, is_quantized: bool) -> None:
        known = self.state_dict(keep_vars=True)
        missing = sorted(name for name, each in known.items() if not getattr(each, "_is_hf_initialized", False))
        if missing:
            raise ValueError(f"{self.config.name_or_path} does not fit the model: {', '.join(missing)} is missing")
        super()._initialize_missing_keys(is_quantized)


def _saved(config: TrellisNetConfig) -> dict[str, Any]:
    return {"format_version": config.format_version, "model": config.model, "arguments": config.arguments}
