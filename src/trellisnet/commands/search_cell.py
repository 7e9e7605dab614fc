"""`trellisnet search-cell`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

from trellisnet.commands.experiment import read_experiment
from trellisnet.commands.printing import print_table
from trellisnet.commands.sharing import share
from trellisnet.core.checks import positive, positive_int
from trellisnet.training.config import ClockName

OWN = {  # flags of a recipe that this command sets
    "model.cell": "--strategy",
    "training.minutes": "--minutes",
    "training.max_steps": "--steps",
    "training.clock": "--clock",
    "training.epochs": "--minutes",
    "training.evaluate_every": "--minutes",
    "training.evaluate_minutes": "--minutes",
    "training.test": "--minutes",
    "training.on_nan": "--minutes",
}
CANDIDATES = 64  # if the budget is in steps


def search_cell(
    recipe: str,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    candidates: int | None = None,
    strategy: Literal["evolution", "random"] = "evolution",
    clock: ClockName = "wall",
    workers: int = 1,
    folder: str | None = None,
    flags: dict[str, str],
) -> int:
    """Search for a cell: train many small expressions of the gates for a short time, and the best ones longer.

    Examples: `trellisnet search-cell char-ptb-small --minutes 120`, then `trellisnet train char-ptb-small --model.cell
    runs/search-char-ptb-small/best.yaml`. First the LSTM cell is trained with three seeds, to measure their noise.
    Candidates come from regularised evolution, or at random as a control. The best quarter of each rung is trained
    four times as long, the LSTM cell beside it. Candidates are judged by validation and do not read the test split.
    Called again with the same folder, it continues. Flags of the recipe, as of `trellisnet train`, apply to all
    candidates; with `--model.parameters N` all have the same size.

    Args:
        recipe: name of a recipe with a trellis network (see `trellisnet recipes`), or path of a YAML file.
        minutes: training time of the whole search; evaluation does not count.
        steps: instead of --minutes, training steps per candidate in the first rung: the same result on every run.
        candidates: number of candidates of the first rung; default as many as get 15 seconds each, from 8 to 256.
        strategy: evolution, or random, the control.
        clock: what the minutes count: wall, or cpu, the time that the cores spend on it, for machines with other work.
        workers: number of processes that share the search; more can be started elsewhere with the same command.
        folder: folder of the search; default `runs/search-RECIPE`, with `-random` for the control.
        flags: the flags that change the recipe.
    """
    from trellisnet.training.cell_search import Search, Terms  # noqa: PLC0415
    from trellisnet.training.cell_space import SEEDS  # noqa: PLC0415
    from trellisnet.training.checks import check_config  # noqa: PLC0415
    from trellisnet.training.reporting.cell_search import BEST, HEAD, rows, write_search  # noqa: PLC0415
    from trellisnet.training.reporting.report import REPORT  # noqa: PLC0415
    from trellisnet.training.signals import Interrupted  # noqa: PLC0415
    from trellisnet.training.tasks import make_task  # noqa: PLC0415

    for flag, instead in OWN.items():
        if flag in flags:
            raise ValueError(f"search-cell sets {flag} for all candidates: use {instead} instead of --{flag}")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("search-cell runs each candidate in one process: use --workers instead of torchrun")
    if (minutes is None) == (steps is None):
        raise ValueError(f"search-cell needs one of --minutes and --steps: got {minutes} and {steps}")
    if steps is not None and clock != "wall":
        raise ValueError(f"--clock belongs to --minutes: got --clock {clock} and --steps {steps}")
    positive_int("--workers", workers)
    if minutes is not None:
        positive("--minutes", minutes)
        default = Terms.candidates_for(minutes)
    else:
        positive_int("--steps", steps)
        default = CANDIDATES
    count = positive_int("--candidates", default if candidates is None else candidates, minimum=4)
    terms = Terms(count, minutes, steps, clock)
    config = read_experiment({"recipe": recipe}, {**flags, "model.cell": SEEDS["lstm"].text}, ())
    assert config is not None
    check_config(config)
    task = make_task(config)
    if "valid" not in task.splits:
        raise ValueError(f"{config.data.name} has no validation split to judge candidates by")
    suffix = "-random" if strategy == "random" else ""
    place = Path("runs") / f"search-{Path(recipe).stem}{suffix}" if folder is None else Path(folder)
    facts = {
        "recipe": recipe,
        "flags": flags,
        "candidates": count,
        "minutes": minutes,
        "steps": steps,
        "clock": clock,
        "strategy": strategy,
    }
    search = Search(place, config, facts, task.metric, terms, strategy)
    try:
        if workers > 1:
            share(workers)
        else:
            search.work(_say, lambda: write_search(search))
    except Interrupted:
        return 130
    finally:
        write_search(search)
    print_table(HEAD, rows(search), HEAD[1:])
    print(f"best: --model.cell {place / BEST}")
    print(f"report: {place / REPORT}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
