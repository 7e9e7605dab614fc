"""Continue runs on purpose: resume one, extend it by epochs, or start a new one from its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trellisnet.checksums import file_hash, forget
from trellisnet.core.checks import positive_int
from trellisnet.models.language import LanguageModel
from trellisnet.models.pretrained import WEIGHTS
from trellisnet.training.config import Config
from trellisnet.training.reading import same_config
from trellisnet.training.runs import RESULT, TASK, Run
from trellisnet.training.saving import load_weights
from trellisnet.training.tasks.base import Task
from trellisnet.vocabulary import FILE_NAME as VOCABULARY
from trellisnet.vocabulary import Vocabulary

REPORT = "report.html"
START, EXTENDED = "from", "extended"  # keys of task.json


def start_from(task: Task, folder: Path, checksum: str | None = None) -> dict[str, str]:
    """Load the best weights of another run into the model of a task; return the entry of task.json about them.

    The runs may differ in data, options and depth, as long as all tensors have the same shapes. A trellis with
    attention can start from one without: it is then equal to it, because its gamma is zero.

    Args:
        task: the task of the new run.
        folder: the other run.
        checksum: that of the weights at the start of the run, if it has been started before.

    Raises:
        ValueError: a tensor does not fit, the vocabulary is another, or the weights have changed; the model is
            unchanged.
    """
    best = Run.open(folder).model_folder("best")
    if isinstance(task.model, LanguageModel) and (best / VOCABULARY).is_file():
        known = Vocabulary.load(best)
        if known != task.model.vocabulary:
            raise ValueError(
                f"--from {folder}: its vocabulary is not that of {task.data.name}, so that its vectors belong to other "
                f"tokens: {known!r} and {task.model.vocabulary!r}"
            )
    found = file_hash(best / WEIGHTS)
    if checksum not in (None, found):
        raise ValueError(f"{best / WEIGHTS} has changed since the run was started from it")
    try:
        load_weights(task.model, best, grown=True)
    except ValueError as error:
        raise ValueError(f"--from {folder}: {error}") from None
    return {"run": str(folder), "sha256": found}


def with_epochs(run: Run, epochs: int) -> Config:
    """The configuration of a run with more epochs.

    Raises:
        ValueError: the run has as many epochs already, or a time budget.
    """
    before = run.config.training.epochs
    if positive_int("training.epochs", epochs) <= before:
        raise ValueError(f"--resume can only extend a run: training.epochs must be above {before}, got {epochs}")
    for name in ("minutes", "max_steps"):
        if getattr(run.config.training, name) is not None:
            raise ValueError(f"{run.folder} has the budget training.{name}: epochs cannot extend it")
    return replace(run.config, training=replace(run.config.training, epochs=epochs))


def write_extension(run: Run, before: int) -> None:
    """Write the configuration of a run that had fewer epochs before, and a record of the extension."""
    facts = run.read_json(TASK) or {}
    extension = [before, run.config.training.epochs]
    facts |= {"config": run.config.to_dict(), EXTENDED: [*facts.get(EXTENDED, []), extension]}
    forget(run.folder)
    for name in (RESULT, REPORT):  # first: without them the run is not finished, with any number of epochs
        (run.folder / name).unlink(missing_ok=True)
    run.write_config(facts)


def history(facts: Mapping[str, Any]) -> list[str]:
    """Sentences about how a run was started and extended, for its log and report."""
    found = [f"started from the weights of {facts[START]['run']}"] if START in facts else []
    return found + [f"extended from {before} to {epochs} epochs" for before, epochs in facts.get(EXTENDED, [])]


def is_finished(run: Run) -> bool:
    """Whether nothing is left to do; a run without its report was killed when it was written."""
    return (run.folder / RESULT).is_file() and (run.folder / REPORT).is_file()


def check_same_run(state: Mapping[str, Any], run: Run, task: Task) -> None:
    """Raise a ValueError if a checkpoint is of another configuration or other data."""
    facts = run.read_json(TASK) or {}
    saved = json.loads(state["config"])
    if saved["training"]["epochs"] in [before for before, _ in facts.get(EXTENDED, [])]:
        saved["training"]["epochs"] = run.config.training.epochs
    if not same_config(saved, run.config):
        raise ValueError(f"{run.folder}/config.yaml has changed: a run must be resumed with its own values")
    where = f"{run.folder}: the data has changed since the last checkpoint"
    task.check_data(state["data"], facts.get("data"), where)
