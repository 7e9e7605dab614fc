"""`trellisnet tune`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trellisnet.commands.experiment import read_experiment
from trellisnet.commands.printing import print_table
from trellisnet.commands.sharing import share
from trellisnet.core.checks import positive, positive_int
from trellisnet.training.config import Config
from trellisnet.training.reading import read_mapping
from trellisnet.training.recipes import recipe_space
from trellisnet.training.space import check_space, read_space

if TYPE_CHECKING:
    from trellisnet.training.tuning import Study

TRIALS = 20  # if no budget is given
SHOWN = 10  # lines of the printed table


def tune(
    recipe: str,
    *,
    space: str | None = None,
    trials: int | None = None,
    minutes: float | None = None,
    pruner: Literal["median", "hyperband", "none"] = "median",
    workers: int = 1,
    folder: str | None = None,
    flags: dict[str, str],
) -> int:
    """Search for good options of a recipe: train trials, give up the worse ones early, write the best as a recipe.

    Examples: `trellisnet tune my.yaml --trials 50`, `trellisnet tune char-ptb-small --space space.yaml --minutes 120`,
    `trellisnet train runs/tune-my/best.yaml`. The search space is the section `tune` of the recipe, or a file:
    `training.learning_rate: {low: 1e-4, high: 1e-2, log: true}`, `model.cell: [lstm, gru]`. Trials are judged by
    validation and do not read the test split. Called again with the same folder, it continues: finished trials stay,
    and a trial that was interrupted is resumed. Flags of the recipe, as of `trellisnet train`, apply to all trials.

    Args:
        recipe: name of a recipe (see `trellisnet recipes`), path of a YAML file, or folder of a run.
        space: YAML file with the search space; default the section `tune` of the recipe.
        trials: number of trials of the whole study; default 20 if no --minutes are given.
        minutes: time budget of this call; a trial that it interrupts is resumed by the next call.
        pruner: give up trials that are worse than the median of the others at the same evaluation, or by hyperband.
        workers: number of processes that share the study; more can be started elsewhere with the same command.
        folder: folder of the study; default `runs/tune-RECIPE`.
        flags: the flags that change the recipe.
    """
    from trellisnet.training.checks import check_config  # noqa: PLC0415
    from trellisnet.training.reporting.tuning import as_recipe, write_study  # noqa: PLC0415
    from trellisnet.training.runs import Run  # noqa: PLC0415
    from trellisnet.training.signals import Interrupted  # noqa: PLC0415
    from trellisnet.training.tasks import make_task  # noqa: PLC0415
    from trellisnet.training.tuning import Study, require_optuna  # noqa: PLC0415

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("tune runs its trials in one process each: use --workers instead of torchrun")
    trials = TRIALS if trials is None and minutes is None else trials
    for name, value, check in (("trials", trials, positive_int), ("minutes", minutes, positive)):
        if value is not None:
            check(f"--{name}", value)
    positive_int("--workers", workers)
    require_optuna()
    where, found = _space(recipe, space)
    dimensions = read_space(found, where)
    for name in dimensions:
        if name in flags:
            raise ValueError(f"{where}: {name} is varied, and --{name} sets it: leave out one of the two")
    test = _read(recipe, flags).training.test

    def configure(chosen: Mapping[str, str]) -> Config:
        return _read(recipe, {**flags, **chosen, "training.test": "false"})

    check_space(dimensions, configure, where)
    task = make_task(config := configure({}))
    check_config(config)
    models = {name: each for name, each in dimensions.items() if not name.startswith("data.")}
    check_space(models, lambda chosen: make_task(configure(chosen), task.data), where)
    if "valid" not in task.splits:
        raise ValueError(f"{config.data.name} has no validation split to judge trials by")
    training = config.training
    evaluations = None if training.minutes else -(-training.epochs // training.evaluate_every)
    place = Path("runs") / f"tune-{Path(recipe).stem}" if folder is None else Path(folder)
    facts = {"recipe": recipe, "flags": flags, "space": found}
    study = Study(place, dimensions, facts, task.metric, pruner, evaluations, training.seed)

    def write() -> None:
        complete = study.complete()
        best = as_recipe(Run.open(study.place(complete[0].number)).config, test) if complete else None
        write_study(study, facts, best)

    try:
        if workers > 1:
            share(workers)
        else:
            study.work(configure, trials, minutes, _say, write)
    except Interrupted:
        return 130
    finally:
        write()
    _show(study)
    return 0


def _show(study: Study) -> None:
    """Print the best trials, and where the results are."""
    from trellisnet.training.reporting.report import REPORT  # noqa: PLC0415
    from trellisnet.training.reporting.tuning import BEST, head, rows  # noqa: PLC0415

    shown = rows(study)
    print_table(head(study), shown[:SHOWN], head(study)[1:2])
    if len(shown) > SHOWN:
        print(f"and {len(shown) - SHOWN} others")
    if study.complete():
        print(f"best: trellisnet train {study.folder / BEST}")
    print(f"report: {study.folder / REPORT}")


def _space(recipe: str, file: str | None) -> tuple[str, object]:
    """The origin of the search space, and its values."""
    if file is not None:
        if not Path(file).is_file():
            raise FileNotFoundError(f"--space {file} not found")
        return file, read_mapping(Path(file))
    found = recipe_space(recipe)
    if found is None:
        raise ValueError(f"recipe {recipe} has no section 'tune' with a search space: add one, or give --space FILE")
    return f"recipe {recipe}", found


def _read(recipe: str, flags: Mapping[str, str]) -> Config:
    config = read_experiment({"recipe": recipe}, flags, ())
    assert config is not None
    return config


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
