"""Load trained runs."""

from __future__ import annotations

from pathlib import Path

import torch

from trellisnet.training.distribution import choose_device
from trellisnet.training.runs import TASK, Run
from trellisnet.training.tasks import load_data, make_task, task_of
from trellisnet.training.tasks.base import Task


def load_task(folder: Path, which: str = "best") -> Task:
    """The task of a run, with its data and its trained model, "best" by validation or "last".

    Raises:
        ValueError: the data is not that of the training; the message names what has changed.
    """
    run = Run.open(folder)
    trained = run.model_folder(which)
    torch.set_flush_denormal(True)
    data = load_data(run.config)
    model = task_of(data).kind.from_pretrained(trained, device=choose_device(run.config.training.device))
    task = make_task(run.config, data, model)
    facts = run.read_json(TASK) or {}
    task.check_data(facts.get("fingerprint"), facts.get("data"), f"{folder}: the data has changed since the training")
    return task
