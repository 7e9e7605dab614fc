"""`trellisnet ablate`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from trellisnet.commands.printing import print_table
from trellisnet.core.checks import positive_int, suggestion
from trellisnet.training.config import Config


def ablate(
    recipe: str,
    *,
    to: str | None = None,
    only: str | None = None,
    seeds: int = 1,
    config: Config,
) -> int:
    """Train a recipe with one ingredient removed at a time, and print the results beside the paper's (table 6).

    Examples: `trellisnet ablate word-ptb`, and with equal time for every variant
    `trellisnet ablate word-ptb-small --training.minutes 5 --training.clock cpu --seeds 2`. Called again with the same
    folder, it continues where it was interrupted.

    Args:
        recipe: name of a recipe (see `trellisnet recipes`), or path of a YAML file.
        to: folder for the runs and results.json; default `runs/ablate-RECIPE`.
        only: names of the ablations to run, separated by commas; default all: full, no-hidden-dropout,
            no-weight-dropout, no-aux, no-parallelism, no-dense-kernel, inject-2, inject-5, inject-10, inject-20.
        seeds: number of runs per variant, with different seeds.
        config: the recipe with the flags that change it.
    """
    from trellisnet.training.ablation import ABLATIONS, flags_from, run_of, sized, variant  # noqa: PLC0415
    from trellisnet.training.contest import train_or_note  # noqa: PLC0415
    from trellisnet.training.reporting.ablation import HEAD, Outcome, finished, rows, write_results  # noqa: PLC0415
    from trellisnet.training.runs import environment  # noqa: PLC0415
    from trellisnet.training.signals import Interrupted  # noqa: PLC0415

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("ablate runs in one process: train its variants one by one under torchrun")
    names = [ablation.name for ablation in ABLATIONS]
    wanted = names if only is None else [name.strip() for name in only.split(",")]
    for name in wanted:
        if name not in names:
            raise ValueError(f"--only must name ablations, got {name!r}{suggestion(name, names)}")
    numbers = range(positive_int("--seeds", seeds))
    folder = Path("runs") / f"ablate-{Path(recipe).stem}" if to is None else Path(to)
    facts = {"recipe": recipe, "environment": environment()}
    config = sized(config)
    variants = [(ablation, *variant(config, ablation)) for ablation in ABLATIONS if ablation.name in wanted]

    def outcomes() -> list[Outcome]:
        found = []
        for ablation, changed, reason in variants:
            summaries = finished([run_of(changed, ablation, number, folder)[0] for number in numbers])
            flags = [flags_from(recipe, summary.config) for summary in summaries]
            commands = [shlex.join(["trellisnet", "train", recipe, *each]) for each in flags]
            found.append(Outcome(ablation, summaries, commands, reason))
        return found

    try:
        for number in numbers:  # all variants with the first seed come first
            for ablation, changed, reason in variants:
                if reason is None:
                    train_or_note(*run_of(changed, ablation, number, folder), _say)
                    write_results(folder, facts, outcomes())
    except Interrupted:
        return 130
    print_table(HEAD, rows(outcomes()), HEAD[:1])
    print("The paper's column is word-level Penn Treebank, test perplexity, 24M parameters.")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
