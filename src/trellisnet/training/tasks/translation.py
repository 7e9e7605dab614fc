"""Translation: a sentence in another language for each sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trellisnet.data.batches import Batch
from trellisnet.data.files.columns import Columns
from trellisnet.data.fingerprints import fingerprint
from trellisnet.data.sequences.data import SequenceData
from trellisnet.data.translation.data import PairData
from trellisnet.data.translation.pairs import read_lines
from trellisnet.models.build import build_seq2seq
from trellisnet.models.evaluation import perplexity
from trellisnet.models.heads import IGNORED
from trellisnet.models.seq2seq import Seq2Seq
from trellisnet.training.config import ModelConfig
from trellisnet.training.metrics import ACCURACY, LOSS, PERPLEXITY
from trellisnet.training.tasks.base import Carried, Sums
from trellisnet.training.tasks.sequences import SequenceTask

SHOWN = 5  # translations in the report
DRAWN = 2  # of them with their attention


class TranslationTask(SequenceTask):
    """The translation of each sentence. The best epoch is chosen by the perplexity of the given translations."""

    kind = Seq2Seq
    takes_modules = False
    metric, others = PERPLEXITY, (LOSS, ACCURACY)
    summed = ("loss", "accuracy", "count")
    data: PairData  # type: ignore[assignment]
    model: Seq2Seq

    def build_model(self, chosen: ModelConfig) -> Seq2Seq:
        options = {"embedding_size": chosen.hidden_size, **chosen.chosen()}
        return build_seq2seq(chosen.body, self.data.source, self.data.target, **options)

    def check_model(self) -> None:
        super().check_model()
        for name, vocabulary in (("source_vocabulary", self.data.source), ("target_vocabulary", self.data.target)):
            if getattr(self.model, name) not in (None, vocabulary):
                raise ValueError(f"model must have the {name} of {self.data.name}, {vocabulary!r}, got another")
            setattr(self.model, name, vocabulary)  # saved with the model, so that it can translate text

    def sizes(self) -> dict[str, tuple[int, int]]:
        return {
            "source_vocab_size": (len(self.model.source_embedding.weight), len(self.data.source)),
            "target_vocab_size": (len(self.model.embedding.weight), len(self.data.target)),
        }

    def loss(
        self, model: nn.Module, batch: Batch, carried: Carried, depth: int | None
    ) -> tuple[Tensor, Mapping[str, Tensor], Carried]:
        options = {} if depth is None else {"depth": depth}
        out = model(batch.inputs, batch.targets, batch.lengths, predict=False, **options)
        return out.loss, out.parts, None

    def outputs(self, batch: Batch, depths: Sequence[int | None]) -> Sequence[Any]:
        return [self.call(self.model, batch, depth) for depth in depths]

    def judge(self, batch: Batch, out: Any) -> Sums:
        """Per token of the translations, line ends included."""
        count = int((batch.targets != IGNORED).sum())
        right = out.prediction.argmax(2).eq(batch.targets).sum().item()
        return {"loss": out.loss.item() * count, "accuracy": right, "count": count}

    def measure(self, sums: Sums) -> dict[str, float]:
        means = super().measure(sums)
        return {"perplexity": perplexity(means["loss"]), **means}

    def protocol(self, evaluation: str | None = None) -> str:
        super().protocol(evaluation)
        return "every token of the translations, each after the given tokens before it"

    def shown(self) -> dict[str, Any]:
        """Translations of the first sentences, and the attention of some of them."""
        items = self.data.splits[self.shown_split]
        rows = [items.pair(i) for i in range(min(SHOWN, len(items)))]
        sources = [self.data.source.decode(source).strip() for source, _ in rows]
        found = self.model.translate([source.tolist() for source, _ in rows])
        texts = [self.data.target.decode(tokens).strip() for tokens in found]
        samples = [{"prompt": source, "text": text} for source, text in zip(sources, texts, strict=True)]
        drawn = [self._attention(source, tokens) for (source, _), tokens in zip(rows[:DRAWN], found, strict=False)]
        return {"samples": samples, "attention": drawn}

    def _attention(self, source: NDArray[Any], tokens: list[int]) -> dict[str, Any]:
        target = [*tokens, self.model.start]
        place = self.device
        weights = self.model.alignment(torch.from_numpy(source)[None].to(place), torch.tensor([target], device=place))
        return {
            "source": [self.data.source.decode([token]) for token in source.tolist()],
            "target": [self.data.target.decode([token]) for token in target],
            "weights": [[round(weight, 4) for weight in row] for row in weights.tolist()],
        }

    @classmethod
    def predict(
        cls, model: Any, facts: Mapping[str, Any], inputs: Any, batch_size: int, per: str | None = None
    ) -> Columns:
        """The translation of each line of a file, or of each text."""
        if per is not None:
            raise ValueError(f"per belongs to language models: got {per!r} for {facts['task']}")
        if isinstance(inputs, (str, Path)):
            inputs = read_lines(Path(inputs))
        texts = list(inputs)
        return {"source": texts, "translation": model.translate(texts, batch_size=batch_size)}

    @classmethod
    def columns(cls, data: SequenceData, names: Sequence[str], outputs: Sequence[NDArray[Any]]) -> Columns:
        raise NotImplementedError  # `predict` is this task's own

    def part_fingerprints(self) -> dict[str, str]:
        tokens = fingerprint(self.data.source.to_json(), self.data.target.to_json())
        return {"vocabulary": tokens, **super().part_fingerprints()}
