"""Optimisers, learning rates, and averaged weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trellisnet.training.config import TrainingConfig


def make_optimiser(config: TrainingConfig, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimiser of a configuration."""
    rate, decay = config.learning_rate, config.weight_decay
    if config.optimiser == "sgd":
        return torch.optim.SGD(parameters, rate, config.momentum, weight_decay=decay)
    kind = torch.optim.Adam if config.optimiser == "adam" else torch.optim.AdamW
    return kind(parameters, rate, weight_decay=decay)


def stalled(history: Sequence[float], patience: int) -> bool:
    """Whether the last value is not below the best of all but the last `patience`: the authors' rule, and NT-ASGD's.

    >>> stalled([5.0, 4.0, 4.1], 2), stalled([5.0, 4.0, 4.1, 4.2], 2)
    (False, True)
    """
    return len(history) > patience and history[-1] >= min(history[:-patience])


def without_progress(history: Sequence[float], evaluations: int) -> bool:
    """Whether the best of all is older than so many evaluations.

    >>> without_progress([3.0, 2.0, 1.9, 2.1], 2), without_progress([3.0, 2.0, 2.1, 2.0], 2)
    (False, True)
    """
    return len(history) > evaluations and min(history[-evaluations:]) >= min(history[:-evaluations])


class LearningRate:
    """The learning rate of every step: a function of how far training is and of how often it was decayed."""

    def __init__(self, config: TrainingConfig, total_steps: int) -> None:
        self.config, self.total = config, max(1, total_steps)
        self.decays = 0

    def at(self, step: int, epoch: int) -> float:
        """The rate of a step in an epoch, both counted from 0."""
        config = self.config
        done = step / self.total
        if config.warmup and done < config.warmup:
            return config.learning_rate * (step + 1) / (config.warmup * self.total + 1)
        after_warmup = (done - config.warmup) / (1 - config.warmup)
        falling = {
            "cosine": (1 + math.cos(math.pi * after_warmup)) / 2,
            "linear": 1 - after_warmup,
        }.get(config.schedule, 1.0)
        past = sum(epoch >= after for after in config.decay_after)
        return config.learning_rate * falling / config.decay ** (self.decays + past)

    def after_evaluation(self, history: Sequence[float]) -> bool:
        """Decay on a plateau; `history` is what validation gave, lower is better."""
        due = self.config.schedule == "plateau" and stalled(history, self.config.patience)
        self.decays += due
        return due


class Average:
    """The mean of a model's parameters over steps, to be used in their place."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.count = 0
        self.means: list[Tensor] = []

    @torch.no_grad()
    def update(self) -> None:
        """Count the parameters as they are now."""
        if not self.count:
            self.means = [parameter.detach().clone() for parameter in self.parameters]
        self.count += 1
        for mean, parameter in zip(self.means, self.parameters, strict=True):
            mean.lerp_(parameter, 1 / self.count)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The model has the means as its parameters, if any were counted."""
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
        """To be saved."""
        return {"count": self.count, "means": self.means}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved one."""
        self.count, self.means = state["count"], state["means"]
