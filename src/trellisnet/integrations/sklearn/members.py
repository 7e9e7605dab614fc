"""Training in memory: the members of an ensemble, each with an early stop on its own held-out part.

`trellisnet.fit` writes a run with checkpoints and a report. An estimator is fitted in a moment and many times, in a
grid search for example, so it uses the same batches, optimiser and schedule without files.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trellisnet.data.batches import Batch, ItemBatches
from trellisnet.data.sequences.given import GivenItems
from trellisnet.models.bidirectional import run_both
from trellisnet.models.dropout import channel_mask, masked
from trellisnet.models.sequence_model import SequenceModel
from trellisnet.training.config import TrainingConfig
from trellisnet.training.optimisation import LearningRate, make_optimiser, without_progress

EVALUATION_BATCH = 64
Split = tuple[NDArray[np.int64], NDArray[np.int64]]  # rows to train on, and rows that are held out


class Member(nn.Module):
    """Models that differ in their read-out only and share a body, which they are trained on together."""

    def __init__(self, models: Sequence[SequenceModel]) -> None:
        super().__init__()
        first, *others = models
        if others and (first.aux_weight or first.reconstruction is not None):
            raise ValueError("aux_every and reconstruct_steps need a read-out that is chosen, got readout='auto'")
        for model in others:
            model.net, model.reverse = first.net, first.reverse
        self.models: Any = nn.ModuleList(models)

    def losses(self, batch: Batch) -> list[Tensor]:
        """The loss of a batch, per model."""
        if len(self.models) == 1:
            return [self.models[0](batch.inputs, batch.targets, batch.lengths).loss]
        first: Any = self.models[0]
        x = batch.inputs.transpose(0, 1)
        if self.training:
            x = masked(x, channel_mask(x, first.options.input_dropout))
        output = run_both(first.net, first.reverse, x, lengths=batch.lengths).output
        if self.training:
            output = masked(output, channel_mask(output, first.options.output_dropout))
        return [model.loss_of(model.answer(output, batch.lengths), batch.targets) for model in self.models]


@dataclass(frozen=True)
class Trained:
    """A model with its best weights by validation.

    Attributes:
        model: the model, which shares nothing with others any more.
        loss: its loss on the held-out part.
        epochs: number of epochs of its training.
    """

    model: SequenceModel
    loss: float
    epochs: int


def train(
    member: Member, items: GivenItems, held: GivenItems, config: TrainingConfig, say: Callable[[str], object]
) -> list[Trained]:
    """Train the models of a member together; return each with the weights of its own best evaluation.

    Args:
        member: the models.
        items: what is trained on.
        held: what the best weights are chosen by.
        config: epochs, batch size, optimiser, schedule, clip, stop_early, evaluate_every, seed and device count.
        say: is called with a line per evaluation.
    """
    parameters = list(member.parameters())
    optimiser = make_optimiser(config, parameters)
    size = min(config.batch_size, len(items))
    batches = ItemBatches(items, size, shuffle=True, seed=config.seed, drop_last=True)
    rate = LearningRate(config, config.epochs * len(batches))
    best: list[Any] = [None for _ in member.models]
    scores: list[list[float]] = []
    step = 0
    while batches.epoch < config.epochs:
        member.train()
        for batch in batches:
            for group in optimiser.param_groups:
                group["lr"] = rate.at(step, batches.epoch)
            optimiser.zero_grad(set_to_none=True)
            torch.stack(member.losses(batch.to(config.device))).sum().backward()
            nn.utils.clip_grad_norm_(parameters, config.clip or math.inf)
            optimiser.step()
            step += 1
        if batches.epoch % config.evaluate_every and batches.epoch < config.epochs:
            continue
        found = evaluate(member, held, config.device)
        scores.append(found)
        for i, (score, model) in enumerate(zip(found, member.models, strict=True)):
            if score <= min(earlier[i] for earlier in scores):
                best[i] = copy.deepcopy(model)
        say(f"epoch {batches.epoch}: held-out loss {min(found):.4f}")
        if config.stop_early and without_progress([min(each) for each in scores], config.stop_early):
            break
    lowest = [min(each) for each in zip(*scores, strict=True)]
    return [Trained(model, loss, batches.epoch) for model, loss in zip(best, lowest, strict=True)]


def evaluate(member: Member, items: GivenItems, device: str) -> list[float]:
    """The mean loss on sequences, per model; infinite if it is no number."""
    member.eval()
    total = np.zeros(len(member.models))
    with torch.no_grad():
        for batch in ItemBatches(items, EVALUATION_BATCH):
            total += len(batch.inputs) * np.array([loss.item() for loss in member.losses(batch.to(device))])
    return [float(mean) if math.isfinite(mean) else math.inf for mean in total / len(items)]


def choose(found: Sequence[Trained], held: GivenItems, device: str) -> Trained:
    """The model with the lowest loss on held-out sequences; but the first one if it is as good within a standard error.

    The first one is the cheapest. The standard error is that of the mean difference between the losses of the two.
    """
    first, best = found[0], min(found, key=lambda each: each.loss)
    difference = _each_loss(first.model, held, device) - _each_loss(best.model, held, device)
    error = difference.std(ddof=1) / math.sqrt(len(difference)) if len(difference) > 1 else math.inf
    return best if difference.mean() > error else first


def _each_loss(model: SequenceModel, items: GivenItems, device: str) -> NDArray[np.float64]:
    """The loss of each sequence."""
    model.eval()
    losses = []
    with torch.no_grad():
        for batch in ItemBatches(items, EVALUATION_BATCH):
            moved = batch.to(device)
            answers = model(moved.inputs, None, moved.lengths).prediction
            pairs = zip(answers.split(1), moved.targets.split(1), strict=True)
            losses += [model.loss_of(answer, target).item() for answer, target in pairs]
    return np.array(losses)


def folds(groups: NDArray[np.int64], count: int, share: float, seed: int) -> list[Split]:
    """Rows to train on, and a held-out share of every group, for each of n members.

    The parts of different members overlap as little as possible. A group's only row is never held out; if none is,
    all rows are both.

    >>> [(kept.tolist(), held.tolist()) for kept, held in folds(np.array([0, 0, 0, 1]), 2, 0.3, seed=0)]
    [([0, 1, 3], [2]), ([1, 2, 3], [0])]
    """
    generator = np.random.default_rng(seed)
    masks = np.zeros((count, len(groups)), dtype=bool)
    for group in np.unique(groups):
        rows = generator.permutation(np.flatnonzero(groups == group))
        held = min(max(1, round(share * len(rows))), len(rows) - 1)
        for number, mask in enumerate(masks):
            mask[np.roll(rows, -number * held)[:held]] = True
    return [(np.flatnonzero(~mask), np.flatnonzero(mask if mask.any() else ~mask)) for mask in masks]


def last_part(count: int, share: float, gap: int) -> Split:
    """The first rows and, after a gap that belongs to neither, a share of all at the end; at least one of each.

    >>> [part.tolist() for part in last_part(10, 0.3, gap=2)]
    [[0, 1, 2, 3, 4], [7, 8, 9]]
    """
    held = min(max(1, round(share * count)), count - 1)
    return np.arange(max(1, count - held - gap)), np.arange(count - held, count)
