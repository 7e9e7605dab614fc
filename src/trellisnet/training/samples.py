"""What a trained model does, shown: writing, a confusion matrix, predictions beside what was right."""

from __future__ import annotations

from typing import Any

import torch

from trellisnet.training.distribution import Workers
from trellisnet.training.language_task import LanguageTask
from trellisnet.training.sequence_tasks import ClassificationTask, RegressionTask
from trellisnet.training.task import Task

PROMPT = 20  # tokens of the validation text that a sample goes on from
PAIRS = 500  # predictions shown at most


def describe_model(task: Task) -> dict[str, Any]:
    """For the report: the number of parameters, and something to look at."""
    told: dict[str, Any] = {"parameters": task.model.num_parameters}
    if isinstance(task, LanguageTask):
        told["samples"] = _writing(task)
    elif isinstance(task, ClassificationTask):
        told["confusion"] = _confusion(task)
    elif isinstance(task, RegressionTask):
        told["predictions"] = _predictions(task)
    return told


def _writing(task: LanguageTask) -> list[dict[str, str]]:
    length = task.training.sample
    if not length:
        return []
    split = "valid" if "valid" in task.splits else task.splits[-1]
    prompt = [int(token) for token in task.data.splits[split][:PROMPT]]
    (words,) = task.model.generate([prompt], length, temperature=0.8, top_p=0.95, seed=task.config.training.seed)
    vocabulary = task.data.vocabulary
    text = vocabulary.decode(words)
    before = vocabulary.decode(prompt)
    return [{"prompt": before, "text": text[len(before) :]}]


def _confusion(task: ClassificationTask) -> dict[str, Any]:
    size = task.data.output_size
    counts = torch.zeros(size, size, dtype=torch.int64)
    for batch in task.data.batches(_last_split(task), task.training.evaluation_batch):
        moved = batch.to(next(task.model.parameters()).device)
        predicted = task.model.predict(moved.inputs, batch.lengths).cpu()
        counts.view(-1).index_add_(0, batch.targets * size + predicted, torch.ones_like(predicted))
    labels = list(task.data.labels) or [str(label) for label in range(size)]
    return {"labels": labels, "counts": counts.tolist()}


def _predictions(task: RegressionTask) -> dict[str, list[float]]:
    pairs: list[tuple[float, float]] = []
    for batch in task.data.batches(_last_split(task), min(PAIRS, task.training.evaluation_batch)):
        moved = batch.to(next(task.model.parameters()).device)
        predicted = task.model.predict(moved.inputs, batch.lengths).cpu()
        pairs += zip(batch.targets[:, 0].tolist(), predicted[:, 0].tolist(), strict=True)
        if len(pairs) >= PAIRS:
            break
    return {"target": [target for target, _ in pairs[:PAIRS]], "predicted": [guess for _, guess in pairs[:PAIRS]]}


def _last_split(task: Task) -> str:
    return "test" if "test" in task.splits else task.splits[-1]


def evaluate_model(task: Task, split: str, evaluation: str | None = None) -> dict[str, float]:
    """Metrics of a split, in this process alone."""
    workers = Workers(device=next(task.model.parameters()).device)
    return task.metrics(task.evaluate(split, workers, evaluation))
