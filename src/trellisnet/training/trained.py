"""Load trained runs and models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trellisnet.models.pretrained import CONFIG, Pretrained
from trellisnet.models.shipped import find_run
from trellisnet.process import prepare_process
from trellisnet.training.distribution import choose_device
from trellisnet.training.runs import TASK, Run, read_json
from trellisnet.training.tasks import TASKS, load_data, make_task, task_of
from trellisnet.training.tasks.base import Task


def load_task(folder: Path, which: str = "best") -> Task:
    """The task of a run, or of a pretrained model by its name, with its data and its model: "best" or "last".

    Raises:
        ValueError: the data is not that of the training; the message names what has changed.
    """
    folder = find_run(folder)
    run = Run.open(folder)
    trained = run.model_folder(which)
    prepare_process()
    data = load_data(run.config)
    model = task_of(data).kind.from_pretrained(trained, device=choose_device(run.config.training.device))
    task = make_task(run.config, data, model)
    facts = run.read_json(TASK) or {}
    task.check_data(facts.get("fingerprint"), facts.get("data"), f"{folder}: the data has changed since the training")
    return task


def load_model(folder: Path, which: str = "best") -> tuple[Pretrained, dict[str, Any]]:
    """Load a trained model without its data, on the CPU, and the facts of its data if they are known.

    Args:
        folder: the folder of a run, or of a model that `save_pretrained` wrote, or the name of a pretrained model.
        which: of a run: "best" by validation, or "last".

    Raises:
        FileNotFoundError: the folder has no model.
        ValueError: the model is none of ours, or a file is damaged.
    """
    folder = find_run(folder)
    trained = Run.open(folder).model_folder(which) if Run.is_in(folder) else folder
    saved = read_json(trained / CONFIG)
    if saved is None:
        raise FileNotFoundError(f"{trained / CONFIG} not found: {folder} has no model of this package")
    kinds = {task.kind for task in TASKS.values()}
    names = {each.__name__: kind for kind in kinds for each in (kind, *kind.__subclasses__())}
    if saved.get("model") not in names:
        raise ValueError(f"{trained / CONFIG} describes a {saved.get('model')!r}, expected {', '.join(sorted(names))}")
    facts = read_json(trained / TASK) or {}
    known: dict[str, Any] = {name: facts[name] for name in ("task", "data") if name in facts}
    return names[saved["model"]].from_pretrained(trained, device="cpu"), known
