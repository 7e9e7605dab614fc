"""Runs that have been trained, to be used."""

from __future__ import annotations

from pathlib import Path

import torch

from trellisnet.training.distribution import choose_device
from trellisnet.training.runs import Run
from trellisnet.training.tasks import load_data, make_task, task_of
from trellisnet.training.tasks.base import Task


def load_task(folder: Path, which: str = "best") -> Task:
    """A run's dataset with its trained model: the best by validation, or the last."""
    run = Run.open(folder)
    trained = folder / which
    if not trained.is_dir():
        raise FileNotFoundError(f"{folder} has no model {which!r} yet: train it first")
    torch.set_flush_denormal(True)
    data = load_data(run.config)
    model = task_of(data).kind.from_pretrained(trained, device=choose_device(run.config.training.device))
    return make_task(run.config, data, model)
