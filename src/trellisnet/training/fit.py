"""A complete run, from start to report: from a configuration, from a folder, or from Python objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trellisnet.checksums import forget
from trellisnet.data.sequences.given import Split
from trellisnet.files import FullDiskError
from trellisnet.process import prepare_process
from trellisnet.training.checkpoints import saved_steps
from trellisnet.training.checks import check_config
from trellisnet.training.config import About, Config, TrainingConfig
from trellisnet.training.continuing import START, history, is_finished, start_from, with_epochs, write_extension
from trellisnet.training.distribution import LostProcess, Workers, is_lost, workers
from trellisnet.training.elastic import launched_run
from trellisnet.training.given import read_data
from trellisnet.training.loop import Trainer
from trellisnet.training.metrics import in_one_line
from trellisnet.training.progress import Progress
from trellisnet.training.reading import flat
from trellisnet.training.runs import RESULT, TASK, Run
from trellisnet.training.saving import load_weights
from trellisnet.training.signals import Interrupted
from trellisnet.training.tasks import make_task
from trellisnet.training.tasks.base import Task, described_model

Metrics = Mapping[str, Mapping[str, float]]
Watch = Callable[[dict[str, Any]], object]


@dataclass(frozen=True, eq=False)
class Fitted:
    """What `fit` returns.

    Attributes:
        model: the given model with the weights of the best validation, in evaluation mode.
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
    """Train a model, as `trellisnet train` does: with checkpoints, log and report; several processes with torchrun.

    Called again with the same folder, it resumes exactly where it was interrupted. A finished run is not trained again:
    its result is returned. torch's random number generator is seeded with `config.seed`.

    Args:
        model: one of our models; or, for sequences, your own `nn.Module`. It is called as `model(inputs, targets)`, or
            `model(inputs, targets, lengths=lengths)` if lengths differ. It returns an object with a `loss`, and
            optionally `prediction` (logits or values) and `parts` (the terms of the loss, by name).
        data: the name of a dataset, `"seq-mnist"`; a mapping with a name and options, `{"name": "adding", "steps": 9}`;
            a `TextData` or `SequenceData`; or arrays `(x, y)` as for `trellisnet.data.from_arrays`.
        config: options of training; default `TrainingConfig()`.
        folder: folder of the run; default the next free `runs/NAME-N`.
        valid: only for arrays: the validation split, as a share of the sequences (default 0.1) or a pair (x, y).
        test: only for arrays: the test split, in the same forms; default none.
        title: title of the report.
    """
    config = TrainingConfig() if config is None else config
    source, loaded = read_data(data, valid, test, getattr(model, "num_classes", None), config.seed)
    whole = Config(About(title), source, described_model(model), config)
    place = None if folder is None else Path(folder)
    with workers(config.device, config.shard) as team:
        check_config(whole, team.count)
        task = _make_task(whole, team, loaded, model)
        started = team.broadcast(place is not None and Run.is_in(place))
        run = Run.open(place) if place is not None and started else _share_folder(task, loaded.name, place, team)
        if started:
            _check_same(run, task)
        if (result := run.read_json(RESULT)) is not None:
            load_weights(task.model, run.folder / "best")
            with Progress(0, task.unit, run.log, quiet=not team.first) as progress:
                progress.say(f"{run.folder} is finished; its best model is loaded")
            return Fitted(model.eval(), result["metrics"], run.folder)
        with run.locked() if team.first else nullcontext():
            again = f"trellisnet.fit(..., folder={str(run.folder)!r})"
            metrics = _fit(run, task, team, started, again)
            return Fitted(model.eval(), metrics, run.folder)


def train_new(
    config: Config, name: str, folder: Path | None = None, start: Path | None = None, watch: Watch | None = None
) -> Run:
    """Train a configuration in a new run folder, from the weights of the run `start` if it is given.

    `watch` is called with every entry of metrics.jsonl. If torchrun starts the processes again, the run that they have
    created before is resumed.
    """
    if (earlier := launched_run(name, folder)) is not None:
        return resume(earlier, watch=watch)
    with workers(config.training.device, config.training.shard) as team:
        check_config(config, team.count)
        task = _make_task(config, team)
        started = {} if start is None else {START: start_from(task, start)}
        run = _share_folder(task, name, folder, team, started)
        with run.locked() if team.first else nullcontext():
            _fit(run, task, team, resuming=False, again=_command(run), watch=watch)
        return run


def resume(folder: Path, epochs: int | None = None, watch: Watch | None = None) -> Run:
    """Resume a run from its last checkpoint. A finished run is not trained again, unless it gets more epochs.

    Args:
        folder: the run.
        epochs: extend the run to this number of epochs.
        watch: called with every entry of metrics.jsonl, existing ones too.

    Raises:
        ValueError: the run was started from Python, or has as many epochs already.
    """
    run = Run.open(folder)
    if (run.read_json(TASK) or {}).get("given"):
        raise ValueError(
            f"{folder} was started from Python: resume it with trellisnet.fit, the same model, data and folder"
        )
    before = run.config.training.epochs
    if epochs is not None:
        run.config = with_epochs(run, epochs)
    with workers(run.config.training.device, run.config.training.shard) as team:
        check_config(run.config, team.count)
        if epochs is None and is_finished(run):
            if team.first:
                print(f"{folder} is finished; --training.epochs N with N > {before} extends it", file=sys.stderr)
            return run
        with run.locked() if team.first else nullcontext():
            if epochs is not None:
                team.wait()  # all processes have read the configuration before it is changed
                if team.first:
                    write_extension(run, before)
                team.wait()
            _fit(run, _make_task(run.config, team), team, resuming=True, again=_command(run), watch=watch)
        return run


def train_in(config: Config, name: str, folder: Path, watch: Watch | None = None) -> Run:
    """Train a configuration in a folder: from the start, from its last checkpoint, or not at all if it is finished.

    `watch` is called with every entry of metrics.jsonl, existing ones too.

    Raises:
        ValueError: the folder was started with other values.
    """
    if not Run.is_in(folder):
        return train_new(config, name, folder, None, watch)
    run = Run.open(folder)
    if run.config != config and make_task(config).config != run.config:
        raise ValueError(f"{folder} was started with other values: choose another folder")
    if not (folder / RESULT).exists():
        return resume(folder, None, watch)
    if watch is not None:
        for entry in run.metrics():
            watch(entry)
    return run


def _make_task(config: Config, team: Workers, data: Any = None, model: nn.Module | None = None) -> Task:
    prepare_process()
    torch.manual_seed(config.training.seed)  # all processes start from the same weights
    task = make_task(config, data, model)
    task.train_batches(team)  # raises errors before a folder is created
    torch.manual_seed(config.training.seed + team.rank)  # each process draws its own dropout masks
    return task


def _share_folder(
    task: Task, name: str, folder: Path | None, team: Workers, started: Mapping[str, Any] | None = None
) -> Run:
    """Create the run's folder in the first process; the others receive its path."""
    if team.first:
        run = Run.create(task.config, name, folder)
        run.write_json(TASK, {**task.facts(), "config": task.config.to_dict(), **(started or {})})
    shared = team.broadcast(str(run.folder) if team.first else None)
    return run if team.first else Run(Path(shared), task.config)


def _check_same(run: Run, task: Task) -> None:
    """Raise a ValueError unless the run was started with the same configuration and data."""
    before, now = (flat(config.to_dict()) for config in (run.config, task.config))
    changed = [name for name in now if before.get(name) != now[name]]
    if changed:
        name = changed[0]
        raise ValueError(
            f"{run.folder} was started with {name} = {before.get(name)!r}, got {now[name]!r}: choose another folder"
        )
    facts = run.read_json(TASK) or {}
    where = f"{run.folder} was started with other data, choose another folder"
    task.check_data(facts.get("fingerprint"), facts.get("data"), where)


def _command(run: Run) -> str:
    return f"trellisnet train --resume {run.folder}"


def _fit(run: Run, task: Task, team: Workers, resuming: bool, again: str, watch: Watch | None = None) -> Metrics:
    """Train to the end; return the metrics of the best model by split. `again` is the command that resumes the run."""
    training = run.config.training
    total, minutes = task.train_batches(team).total(training.epochs), training.minutes
    total = total if training.max_steps is None else min(total, training.max_steps)
    length = f"{total} steps" if minutes is None else f"{minutes:g} minutes"
    with Progress(total, task.unit, run.log, quiet=not team.first) as progress:
        facts = run.read_json(TASK) or {}
        if resuming and START in facts and not saved_steps(run.checkpoints):
            start_from(task, Path(facts[START]["run"]), facts[START]["sha256"])
        trainer = Trainer(run, task, team, progress)
        for sentence in history(facts):
            progress.say(f"this run was {sentence}")
        if team.first:
            forget(run.folder)  # of a run that was killed before its report
        if resuming and trainer.restore():
            used = "" if minutes is None else f", {trainer.clock.used / 60:.2f} minutes"
            progress.say(f"resumes from step {trainer.step}{used} of {length}")
        else:
            size = task.num_parameters / 1e6
            progress.say(f"{type(task.model).__name__}, {size:.2f}M parameters, {length}, in {run.folder}")
        if team.first:
            run.track(progress.say)
        if watch is not None:
            for entry in run.metrics():
                watch(entry)
            run.watch = watch
        try:
            metrics = trainer.fit()
            if team.first:
                _conclude(run, task, metrics, progress)
            team.wait()  # a process that exits early breaks the connections of the others
        except KeyboardInterrupt:
            progress.say(f"interrupted and saved; resume with: {again}")
            raise Interrupted from None
        except FullDiskError as error:
            raise FullDiskError(error.path, error.reason, f"free some space and resume with: {again}") from error
        except RuntimeError as error:
            if team.count > 1 and is_lost(error):
                lost = f"another process has ended, so this one stops after step {trainer.step}; resume with: {again}"
                print(f"process {team.rank}: {lost}", file=sys.stderr, flush=True)  # torchrun may end this one soon
                if team.first:
                    run.log(lost)
                raise LostProcess(lost) from error
            if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
                raise
            steps = "" if training.steps is None else f" and training.steps={training.steps}"
            raise MemoryError(
                f"out of memory with training.batch_size={training.batch_size}{steps}: "
                "try --model.memory recompute, or a larger --training.accumulate"
            ) from error
    return metrics


def _conclude(run: Run, task: Task, metrics: Metrics, progress: Progress) -> None:
    """Write the result and the report, and print a summary."""
    from trellisnet.training.reporting.report import write_report  # noqa: PLC0415

    shown = task.shown()
    result = {"metrics": metrics, "protocol": task.protocol(), "parameters": task.num_parameters}
    naive = {split: task.naive(split) for split in metrics}
    run.write_json(RESULT, {**result, **({"naive": naive} if any(naive.values()) else {}), **shown})
    run.seal()
    report = write_report(run)
    for sample in shown.get("samples", []):
        progress.say(f"a sample of generated text:\n\n{sample['prompt']}{sample['text']}\n")
    for split, values in metrics.items():
        progress.say(f"best model, {split}: {in_one_line(values)} ({task.protocol()})")
        for name, errors in naive[split].items():
            progress.say(f"naive forecast, {name}, {split}: {in_one_line(errors)}")
    for depth, values in run.metrics()[-1].get("depths", {}).items():
        progress.say(f"best model at depth {depth}, {task.valid_split}: {in_one_line(values)}")
    progress.say(f"report: {report}")
