"""Optimisers, learning rates, and averaged weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trellisnet.training.clock import Clock
from trellisnet.training.config import TrainingConfig


def make_optimiser(config: TrainingConfig, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimiser of a configuration."""
    rate, decay = config.learning_rate, config.weight_decay
    if config.optimiser == "sgd":
        return torch.optim.SGD(parameters, rate, config.momentum, weight_decay=decay)
    kind = torch.optim.Adam if config.optimiser == "adam" else torch.optim.AdamW
    return kind(parameters, rate, weight_decay=decay, fused=True)  # one pass over the weights: a third of the time


def stalled(scores: Sequence[float], patience: int) -> bool:
    """Whether the last score is not below the minimum of all but the last `patience` scores.

    This is the rule of the authors' code and of NT-ASGD.

    >>> stalled([5.0, 4.0, 4.1], 2), stalled([5.0, 4.0, 4.1, 4.2], 2)
    (False, True)
    """
    return len(scores) > patience and scores[-1] >= min(scores[:-patience])


def without_progress(scores: Sequence[float], evaluations: int) -> bool:
    """Whether the last n evaluations have not improved on the earlier ones.

    >>> without_progress([3.0, 2.0, 1.9, 2.1], 2), without_progress([3.0, 2.0, 2.1, 2.0], 2)
    (False, True)
    """
    return len(scores) > evaluations and min(scores[-evaluations:]) >= min(scores[:-evaluations])


class LearningRate:
    """The learning rate as a function of the step, the epoch and the number of decays so far.

    Args:
        config: the options of training.
        total_steps: steps of the whole run.
        clock: with a time budget, the schedule follows the share of the time if that is larger.
    """

    def __init__(self, config: TrainingConfig, total_steps: int, clock: Clock | None = None) -> None:
        self.config, self.total, self.clock = config, max(1, total_steps), clock
        self.decays = 0

    def at(self, step: int, epoch: int) -> float:
        """The rate of a step in an epoch, both counted from 0."""
        config = self.config
        position = step if self.clock is None else max(step, self.clock.share * self.total)
        done = position / self.total
        if config.warmup and done < config.warmup:
            return config.learning_rate * (position + 1) / (config.warmup * self.total + 1)
        after_warmup = (done - config.warmup) / (1 - config.warmup)
        falling = {
            "cosine": (1 + math.cos(math.pi * after_warmup)) / 2,
            "linear": 1 - after_warmup,
        }.get(config.schedule, 1.0)
        past = sum(epoch >= after for after in config.decay_after)
        return config.learning_rate * falling / config.decay ** (self.decays + past)

    def after_evaluation(self, scores: Sequence[float]) -> bool:
        """Decay on a plateau, and return whether it did; `scores` are those of validation, lower is better."""
        due = self.config.schedule == "plateau" and stalled(scores, self.config.patience)
        self.decays += due
        return due


class Average:
    """The mean of a model's parameters over steps, for use in evaluation."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.count = 0
        self.means: list[Tensor] = []

    @torch.no_grad()
    def update(self) -> None:
        """Add the current parameters to the mean."""
        if not self.count:
            self.means = [parameter.detach().clone() for parameter in self.parameters]
        self.count += 1
        for mean, parameter in zip(self.means, self.parameters, strict=True):
            mean.lerp_(parameter, 1 / self.count)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Replace the parameters by their means, if there are any, until the end of the context."""
        if not self.count:
            yield
            return
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for mean, parameter in zip(self.means, self.parameters, strict=True):
            kept = parameter.clone()
            parameter.copy_(mean)
            mean.copy_(kept)

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"count": self.count, "means": self.means}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self.count, self.means = state["count"], state["means"]
