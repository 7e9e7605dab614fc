"""A run from its beginning to its report: from a configuration, from a folder, or from Python objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trellisnet.data.sequences.given import Split
from trellisnet.training.checks import check_config
from trellisnet.training.config import About, Config, TrainingConfig
from trellisnet.training.distribution import Workers, workers
from trellisnet.training.given import read_data
from trellisnet.training.loop import Interrupted, Trainer
from trellisnet.training.progress import Progress
from trellisnet.training.runs import RESULT, TASK, Run
from trellisnet.training.saving import load_weights
from trellisnet.training.tasks import make_task
from trellisnet.training.tasks.base import Task, described_model

Metrics = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class Fitted:
    """What `fit` returns.

    Attributes:
        model: the model that was given, with the weights that were best in validation, in evaluation mode.
        metrics: of the best model, by split and name: `metrics["valid"]["accuracy"]`.
        folder: the run, with report, log, metrics and models.
    """

    model: Any
    metrics: Metrics
    folder: Path


def fit(
    model: nn.Module,
    data: Any,
    config: TrainingConfig | None = None,
    folder: Path | str | None = None,
    *,
    valid: Split = None,
    test: Split = None,
    title: str = "",
) -> Fitted:
    """Train a model, as `trellisnet train` does: with checkpoints, log, report, and many processes under torchrun.

    Called again with the same folder, it goes on exactly where it was interrupted; a run that has ended is not trained
    again. It seeds torch's random numbers with `config.seed`.

    Args:
        model: one of ours; or, for sequences, an `nn.Module` of your own that is called as `model(inputs, targets)`, or
            `model(inputs, targets, lengths=lengths)` if lengths are unequal, and returns an object with a `loss`, and
            if it can `prediction` (logits or values) and `parts` (what the loss is the sum of, by name).
        data: the name of a dataset, `"seq-mnist"`; a mapping with a name and options, `{"name": "adding", "steps": 9}`;
            a `TextData` or `SequenceData`; or arrays `(x, y)` as `trellisnet.data.from_arrays` takes them.
        config: how to train; default `TrainingConfig()`.
        folder: of the run; default the next free `runs/NAME-N`.
        valid: of arrays: what the best model is chosen by, a share of the sequences (default a tenth) or a pair (x, y).
        test: of arrays: what the best model is judged by at the end, in the same forms; default none.
        title: of the report.
    """
    config = TrainingConfig() if config is None else config
    source, loaded = read_data(data, valid, test, getattr(model, "num_classes", None), config.seed)
    whole = Config(About(title), source, described_model(model), config)
    place = None if folder is None else Path(folder)
    with workers(config.device) as team:
        check_config(whole, team.count)
        task = _make_task(whole, team, loaded, model)
        begun = team.broadcast(place is not None and Run.is_in(place))
        run = Run.open(place) if place is not None and begun else _share_folder(task, loaded.name, place, team)
        if begun:
            _check_same(run, task)
        if (result := run.read_json(RESULT)) is not None:
            load_weights(task.model, run.folder / "best")
            with Progress(0, task.unit, run.log, quiet=not team.first) as progress:
                progress.say(f"{run.folder} has ended; its best model was loaded")
            return Fitted(model.eval(), result["metrics"], run.folder)
        with run.locked() if team.first else nullcontext():
            again = f"trellisnet.fit(..., folder={str(run.folder)!r})"
            metrics = _fit(run, task, team, begun, again)
            return Fitted(model.eval(), metrics, run.folder)


def train_new(config: Config, name: str, folder: Path | None = None) -> Run:
    """Train a configuration in a new run folder."""
    with workers(config.training.device) as team:
        check_config(config, team.count)
        task = _make_task(config, team)
        run = _share_folder(task, name, folder, team)
        with run.locked() if team.first else nullcontext():
            _fit(run, task, team, go_on=False, again=_command(run))
        return run


def resume(folder: Path) -> Run:
    """Go on with a run from its last checkpoint."""
    run = Run.open(folder)
    if (run.read_json(TASK) or {}).get("given"):
        raise ValueError(f"{folder} was begun in Python: go on with trellisnet.fit, the same model, data and folder")
    with workers(run.config.training.device) as team:
        check_config(run.config, team.count)
        with run.locked() if team.first else nullcontext():
            _fit(run, _make_task(run.config, team), team, go_on=True, again=_command(run))
        return run


def _make_task(config: Config, team: Workers, data: Any = None, model: nn.Module | None = None) -> Task:
    torch.set_flush_denormal(True)  # deep stacks underflow, and denormal numbers are slow
    torch.manual_seed(config.training.seed)  # all processes start from the same weights
    task = make_task(config, data, model)
    task.train_batches(team)  # finds what does not fit before a folder is made
    torch.manual_seed(config.training.seed + team.rank)  # and draw masks of their own
    return task


def _share_folder(task: Task, name: str, folder: Path | None, team: Workers) -> Run:
    """The first process makes the folder, the others are told which it is."""
    if team.first:
        run = Run.create(task.config, name, folder)
        run.write_json(TASK, task.facts())
    shared = team.broadcast(str(run.folder) if team.first else None)
    return run if team.first else Run(Path(shared), task.config)


def _check_same(run: Run, task: Task) -> None:
    """That a run is about to go on with the values and the data that it began with."""
    before, now = (_flat(config.to_dict()) for config in (run.config, task.config))
    changed = [name for name in now if before.get(name) != now[name]]
    if changed:
        name = changed[0]
        raise ValueError(
            f"{run.folder} was begun with {name} = {before.get(name)!r}, got {now[name]!r}: choose another folder"
        )
    if (run.read_json(TASK) or {}).get("fingerprint") not in (None, task.fingerprint()):
        raise ValueError(f"{run.folder} was begun with other data: choose another folder")


def _flat(values: Mapping[str, Any], group: str = "") -> dict[str, Any]:
    """Nested values by names such as training.epochs, as they are after a file."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{group}{name}.")
        else:
            flat[f"{group}{name}"] = json.loads(json.dumps(value, default=str))
    return flat


def _command(run: Run) -> str:
    return f"trellisnet train --resume {run.folder}"


def _fit(run: Run, task: Task, team: Workers, go_on: bool, again: str) -> Metrics:
    """Train until the end; metrics of the best model by split. `again` says how to go on after an interruption."""
    total = run.config.training.epochs * len(task.train_batches(team))
    with Progress(total, task.unit, run.log, quiet=not team.first) as progress:
        trainer = Trainer(run, task, team, progress)
        if go_on and trainer.restore():
            progress.say(f"goes on from step {trainer.step} of {total}")
        else:
            size = task.num_parameters / 1e6
            progress.say(f"{type(task.model).__name__}, {size:.2f}M parameters, {total} steps, in {run.folder}")
        if team.first and run.config.training.tensorboard:
            run.write_events()
        try:
            metrics = trainer.fit()
        except Interrupted:
            progress.say(f"interrupted and saved; go on with: {again}")
            raise
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
                raise
            training = run.config.training
            steps = "" if training.steps is None else f" and training.steps={training.steps}"
            raise MemoryError(
                f"out of memory with training.batch_size={training.batch_size}{steps}: "
                "try --model.memory recompute, or a larger --training.accumulate"
            ) from error
        if team.first:
            _conclude(run, task, metrics, progress)
        team.wait()  # who leaves earlier would break the connection of those who still work
    return metrics


def _conclude(run: Run, task: Task, metrics: Metrics, progress: Progress) -> None:
    """Samples, report, and the last words."""
    from trellisnet.training.reporting.report import write_report  # noqa: PLC0415

    shown = task.shown()
    result = {"metrics": metrics, "protocol": task.protocol(), "parameters": task.num_parameters}
    run.write_json(RESULT, {**result, **shown})
    report = write_report(run)
    for sample in shown.get("samples", []):
        progress.say(f"a sample of its writing:\n\n{sample['prompt']}{sample['text']}\n")
    for split, values in metrics.items():
        told = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
        progress.say(f"best model, {split}: {told} ({task.protocol()})")
    progress.say(f"report: {report}")
