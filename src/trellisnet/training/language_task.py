"""Learning a text."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

from trellisnet.data.batches import Batch, Batches
from trellisnet.data.text.data import TextData
from trellisnet.models.build import build_language_model
from trellisnet.models.evaluation import perplexity
from trellisnet.models.language import LanguageModel
from trellisnet.training.config import TEXT_DEFAULTS, Config
from trellisnet.training.distribution import Workers
from trellisnet.training.streaming import stream_columns
from trellisnet.training.task import Carried, Sums, Task

SAMPLED = 10_000  # tokens of a text that its fingerprint is made of


class LanguageTask(Task):
    """Text: the next word at every step, by a language model."""

    unit = "tokens"
    model: LanguageModel

    def __init__(self, config: Config, data: TextData) -> None:
        options = {"embedding_size": config.model.hidden_size, **config.model.chosen()}
        model = build_language_model(
            config.model.body, vocab_size=len(data.vocabulary), vocabulary=data.vocabulary, **options
        )
        unset = {name: value for name, value in TEXT_DEFAULTS.items() if getattr(config.training, name) is None}
        super().__init__(replace(config, training=replace(config.training, **unset)), model)
        self.data = data
        self.metric = "bits" if data.vocabulary.kind == "characters" else "perplexity"
        assert self.training.steps is not None
        self.window = self.training.steps

    def train_batches(self, workers: Workers) -> Batches:
        return self._windows("train", self.training.batch_size, workers)

    def _windows(self, split: str, batch_size: int, workers: Workers) -> Batches:
        return self.data.batches(
            split, batch_size, self.window, context=self._context(), rank=workers.rank, world_size=workers.count
        )

    def loss(
        self, model: nn.Module, batch: Batch, carried: Carried, depth: int | None
    ) -> tuple[Tensor, Mapping[str, Tensor], Carried]:
        out = model(batch.inputs, batch.targets, carried if batch.continues else None, depth=depth)
        return out.loss, out.parts, out.state

    def evaluate(self, split: str, workers: Workers, evaluation: str | None = None, depth: int | None = None) -> Sums:
        if (evaluation or self.training.evaluation) == "streaming":
            ids = self.data.splits[split]
            nll, count = stream_columns(self.model, ids, self.training.evaluation_batch, self.window, workers, depth)
            return {"nll": nll, "count": float(count)}
        sums, carried = {"nll": 0.0, "count": 0.0}, None
        batch_size = self.training.batch_size
        with self.model.reading():
            for batch in self._windows(split, batch_size, workers):
                moved = batch.to(workers.device)
                state = carried if batch.continues else None
                out = self.model(moved.inputs, moved.targets, state, depth=depth, history=self.model.options.history)
                counted = batch.targets.shape[0] * (batch.targets.shape[1] - self._context())
                sums["nll"] += out.loss.item() * counted
                sums["count"] += counted
                carried = out.state
        return sums

    def _context(self) -> int:
        return (self.model.options.horizon or 0) if self.model.options.history == "discard" else 0

    def metrics(self, sums: Sums) -> dict[str, float]:
        loss = sums["nll"] / sums["count"]
        return {"loss": loss, "perplexity": perplexity(loss), "bits": loss / math.log(2)}

    def size(self, batch: Batch) -> int:
        return batch.targets.shape[0] * (batch.targets.shape[1] - self._context())

    def protocol(self, evaluation: str | None = None) -> str:
        if (evaluation or self.training.evaluation) == "streaming":
            return "exact streaming: every token once, with its full receptive field"
        how = {"carry": "exact history", "repackage": "repackaged history"}.get(self.model.options.history)
        how = how or f"the first {self.model.options.horizon} steps of each as context"
        columns = self.training.batch_size
        return f"windows of {self.window} in {columns} columns, {how} (the authors' way)"

    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.data.vocabulary.to_json().encode())
        for ids in self.data.splits.values():
            digest.update(f"{len(ids)}".encode())
            digest.update(ids[:: max(1, len(ids) // SAMPLED)].tobytes())  # all of it would take long
        return digest.hexdigest()

    @property
    def splits(self) -> list[str]:
        return list(self.data.splits)
