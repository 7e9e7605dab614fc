"""A run from its beginning to its report."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import torch

from trellisnet.training.checks import check_config
from trellisnet.training.config import Config
from trellisnet.training.distribution import Workers, workers
from trellisnet.training.loop import Interrupted, Trainer
from trellisnet.training.progress import Progress
from trellisnet.training.runs import TASK, Run
from trellisnet.training.tasks import make_task
from trellisnet.training.tasks.base import Task


def train_new(config: Config, name: str, folder: Path | None = None) -> Run:
    """Train a configuration in a new run folder."""
    with workers(config.training.device) as team:
        check_config(config, team.count)
        task = _make_task(config, team)
        run = _share_folder(task, name, folder, team)
        with run.locked() if team.first else nullcontext():
            _fit(run, task, team, go_on=False)
        return run


def resume(folder: Path) -> Run:
    """Go on with a run from its last checkpoint."""
    run = Run.open(folder)
    with workers(run.config.training.device) as team:
        check_config(run.config, team.count)
        with run.locked() if team.first else nullcontext():
            _fit(run, _make_task(run.config, team), team, go_on=True)
        return run


def _make_task(config: Config, team: Workers) -> Task:
    torch.set_flush_denormal(True)  # deep stacks underflow, and denormal numbers are slow
    torch.manual_seed(config.training.seed)  # all processes start from the same weights
    task = make_task(config)
    task.train_batches(team)  # finds what does not fit before a folder is made
    torch.manual_seed(config.training.seed + team.rank)  # and draw masks of their own
    return task


def _share_folder(task: Task, name: str, folder: Path | None, team: Workers) -> Run:
    """The first process makes the folder, the others are told which it is."""
    if team.first:
        run = Run.create(task.config, name, folder)
    shared = team.broadcast(str(run.folder) if team.first else None)
    return run if team.first else Run(Path(shared), task.config)


def _fit(run: Run, task: Task, team: Workers, go_on: bool) -> None:
    total = run.config.training.epochs * len(task.train_batches(team))
    with Progress(total, task.unit, run.log, quiet=not team.first) as progress:
        trainer = Trainer(run, task, team, progress)
        if team.first:
            run.write_json(TASK, task.facts())
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
            progress.say(f"interrupted and saved; go on with: trellisnet train --resume {run.folder}")
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


def _conclude(run: Run, task: Task, metrics: Mapping[str, Mapping[str, float]], progress: Progress) -> None:
    """Samples, report, and the last words."""
    from trellisnet.training.reporting.report import write_report  # noqa: PLC0415

    shown = task.shown()
    result = {"metrics": metrics, "protocol": task.protocol(), "parameters": task.num_parameters}
    run.write_json("result.json", {**result, **shown})
    report = write_report(run)
    for sample in shown.get("samples", []):
        progress.say(f"a sample of its writing:\n\n{sample['prompt']}{sample['text']}\n")
    for split, values in metrics.items():
        told = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
        progress.say(f"best model, {split}: {told} ({task.protocol()})")
    progress.say(f"report: {report}")
