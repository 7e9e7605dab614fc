"""Runs that have been trained, to be used."""

from __future__ import annotations

from pathlib import Path

import torch

from trellisnet.training.distribution import choose_device
from trellisnet.training.language_task import LanguageTask
from trellisnet.training.runs import Run
from trellisnet.training.task import Task
from trellisnet.training.tasks import make_task


def load_task(folder: Path, which: str = "best") -> Task:
    """A run's dataset with its trained model: the best by validation, or the last."""
    run = Run.open(folder)
    trained = folder / which
    if not trained.is_dir():
        raise FileNotFoundError(f"{folder} has no model {which!r} yet: train it first")
    torch.set_flush_denormal(True)
    task = make_task(run.config)
    device = choose_device(run.config.training.device)
    task.model = type(task.model).from_pretrained(trained, device=device)
    known = getattr(task.model, "vocabulary", None)
    if isinstance(task, LanguageTask) and known != task.data.vocabulary:
        raise ValueError(f"{folder}: the text has another vocabulary than the model: was it changed since?")
    return task
