"""Language modelling: the next token at every step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from trellisnet.core.checks import one_of
from trellisnet.data.batches import Batch, Batches
from trellisnet.data.files.columns import Columns
from trellisnet.data.fingerprints import fingerprint
from trellisnet.data.text.data import TextData
from trellisnet.models.body import receptive_field
from trellisnet.models.build import build_language_model
from trellisnet.models.evaluation import perplexity
from trellisnet.models.language import LanguageModel
from trellisnet.training.config import TEXT_DEFAULTS, Config, ModelConfig
from trellisnet.training.distribution import Workers
from trellisnet.training.metrics import BITS, LOSS, PERPLEXITY
from trellisnet.training.scoring import read_texts, score_texts
from trellisnet.training.streaming import UNBOUNDED, stream_columns
from trellisnet.training.tasks.base import Carried, Sums, Task

PROMPT = 20  # tokens of the validation text that the report's sample continues


class LanguageTask(Task):
    """The next token at every step of a text, by a language model."""

    kind = LanguageModel
    unit = "tokens"
    data: TextData
    model: LanguageModel

    def __init__(self, config: Config, data: TextData, model: nn.Module | None = None) -> None:
        self.metric = BITS if data.vocabulary.kind == "characters" else PERPLEXITY
        self.others = tuple(metric for metric in (LOSS, PERPLEXITY, BITS) if metric != self.metric)
        super().__init__(config, data, model)
        assert self.training.steps is not None
        self.window = self.training.steps

    def _with_defaults(self, config: Config) -> Config:
        unset = {name: value for name, value in TEXT_DEFAULTS.items() if getattr(config.training, name) is None}
        return replace(config, training=replace(config.training, **unset))

    def build_model(self, chosen: ModelConfig) -> LanguageModel:
        vocabulary = self.data.vocabulary
        options = {"embedding_size": chosen.hidden_size, **chosen.chosen()}
        return build_language_model(chosen.body, vocab_size=len(vocabulary), vocabulary=vocabulary, **options)

    def check_model(self) -> None:
        model, vocabulary = self.model, self.data.vocabulary
        if not isinstance(model, LanguageModel):
            raise TypeError(f"model must be a LanguageModel to learn the text {self.data.name}, got {_kind(model)}")
        if model.vocabulary is None and model.vocab_size == len(vocabulary):
            model.vocabulary = vocabulary  # saved with the model, so that it can encode and decode text
        if model.vocabulary != vocabulary:
            raise ValueError(
                f"model must have the vocabulary of the text {self.data.name}, {vocabulary!r}, got another of "
                f"{model.vocab_size}: was the text changed since?"
            )

    def train_batches(self, workers: Workers) -> Batches:
        return self._windows("train", workers, self.training.seed if self.training.random_windows else None)

    def _windows(self, split: str, workers: Workers, seed: int | None = None) -> Batches:
        where = {"rank": workers.rank, "world_size": workers.count}
        return self.data.batches(
            split, self.training.batch_size, self.window, context=self._context(), seed=seed, **where
        )

    def rate_factor(self, batch: Batch) -> float:
        steps = batch.targets.shape[1] - self._context()
        return steps / self.window if self.training.random_windows else 1.0

    def loss(
        self, model: nn.Module, batch: Batch, carried: Carried, depth: int | None
    ) -> tuple[Tensor, Mapping[str, Tensor], Carried]:
        out = model(batch.inputs, batch.targets, carried if batch.continues else None, depth=depth)
        return out.loss, out.parts, out.state

    def evaluate(
        self, split: str, workers: Workers, evaluation: str | None = None, depths: Sequence[int | None] = (None,)
    ) -> list[Sums]:
        if (evaluation or self.training.evaluation) == "streaming":
            ids = self.data.splits[split]
            nlls, count = stream_columns(self.model, ids, self.training.evaluation_batch, self.window, workers, depths)
            return [{"nll": nll, "count": float(count)} for nll in nlls]
        # one pass per depth, because a repackaged history depends on it
        return [self._evaluate_windows(split, workers, depth) for depth in depths]

    def _evaluate_windows(self, split: str, workers: Workers, depth: int | None) -> Sums:
        sums, carried = {"nll": 0.0, "count": 0.0}, None
        with self.model.reading():
            for batch in self._windows(split, workers):
                moved = batch.to(workers.device)
                state = carried if batch.continues else None
                out = self.model(moved.inputs, moved.targets, state, depth=depth, history=self.model.options.history)
                counted = self.size(batch)
                sums["nll"] += out.loss.item() * counted
                sums["count"] += counted
                carried = out.state
        return sums

    def evaluate_adapting(
        self, split: str, limit: int | None = None, **adaptation: Any
    ) -> tuple[dict[str, float], str]:
        """`adaptation` are options of `LanguageModel.score`; without any, the model does not adapt."""
        ids = self.data.splits[split]
        score = self.model.score(ids[:limit], **{"window": adaptation.pop("window", None) or self.window, **adaptation})
        cut = "" if limit is None or limit >= len(ids) else f", the first {limit} tokens"
        return {"loss": score.nll, "perplexity": score.perplexity, "bits": score.bits}, f"{score.protocol}{cut}"

    def _context(self) -> int:
        return (self.model.options.horizon or 0) if self.model.options.history == "discard" else 0

    def metrics(self, sums: Sums) -> dict[str, float]:
        loss = sums["nll"] / sums["count"]
        return {"loss": loss, "perplexity": perplexity(loss), "bits": loss / math.log(2)}

    def size(self, batch: Batch) -> int:
        return batch.targets.shape[0] * (batch.targets.shape[1] - self._context())

    def protocol(self, evaluation: str | None = None) -> str:
        if (evaluation or self.training.evaluation) == "streaming":
            if receptive_field(self.model.net) is None:
                return f"streaming: every token once, columns after {UNBOUNDED} tokens of context"
            return "exact streaming: every token once, with its full receptive field"
        how = {"carry": "exact history", "repackage": "repackaged history"}.get(self.model.options.history)
        how = how or f"the first {self.model.options.horizon} steps of each as context"
        columns = self.training.batch_size
        return f"windows of {self.window} in {columns} columns, {how} (the authors' way)"

    def shown(self) -> dict[str, Any]:
        """A sample of generated text."""
        length, vocabulary = self.training.sample, self.data.vocabulary
        if not length:
            return {"samples": []}
        prompt = [int(token) for token in self.data.splits[self.valid_split][:PROMPT]]
        (words,) = self.model.generate([prompt], length, temperature=0.8, top_p=0.95, seed=self.training.seed)
        text, before = vocabulary.decode(words), vocabulary.decode(prompt)
        return {"samples": [{"prompt": before, "text": text[len(before) :]}]}

    @classmethod
    def predict(
        cls, model: Any, facts: Mapping[str, Any], inputs: Any, batch_size: int, per: str | None = None
    ) -> Columns:
        """Log-probability, perplexity and bits per token of each line of a file, of the whole file, or of each text."""
        per = one_of("per", "line" if per is None else per, ("line", "document"))
        texts = read_texts(inputs, per)
        return {per: list(range(1, len(texts) + 1)), **score_texts(model, texts, batch_size)}

    def part_fingerprints(self) -> dict[str, str]:
        ids = {split: fingerprint(np.asarray(ids)) for split, ids in self.data.splits.items()}
        return {"vocabulary": fingerprint(self.data.vocabulary.to_json()), **ids}


def _kind(model: object) -> str:
    return type(model).__name__
