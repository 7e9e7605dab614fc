"""`trellisnet ablate`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from trellisnet.core.checks import suggestion
from trellisnet.training.config import Config


def ablate(recipe: str, *, to: str | None = None, only: list[str] = [], config: Config) -> int:  # noqa: B006
    """Train a recipe with one ingredient removed at a time, and print the results beside the paper's (table 6).

    Called again with the same folder, it continues where it was interrupted.

    Args:
        recipe: name of a recipe (see `trellisnet recipes`), or path of a YAML file.
        to: folder for the runs; default `runs/ablate-RECIPE`.
        only: names of the ablations to run; default all: full, no-hidden-dropout, no-weight-dropout, no-aux,
            no-parallelism, no-dense-kernel, inject-2, inject-5, inject-10, inject-20.
        config: the recipe with the flags that change it.
    """
    from trellisnet.training.ablation import ABLATIONS, variant  # noqa: PLC0415
    from trellisnet.training.fit import train_in  # noqa: PLC0415
    from trellisnet.training.signals import Interrupted  # noqa: PLC0415

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("ablate runs in one process: train its variants one by one under torchrun")
    names = [ablation.name for ablation in ABLATIONS]
    for name in only:
        if name not in names:
            raise ValueError(f"--only must name ablations, got {name!r}{suggestion(name, names)}")
    folder = Path("runs") / f"ablate-{Path(recipe).stem}" if to is None else Path(to)
    skipped: dict[str, str] = {}
    for ablation in ABLATIONS:
        if only and ablation.name not in only:
            continue
        changed, reason = variant(config, ablation)
        if reason is not None:
            skipped[ablation.name] = reason
            continue
        try:
            train_in(changed, ablation.name, folder / ablation.name)
        except Interrupted:
            return 130
    _show(folder, config, skipped)
    return 0


def _show(folder: Path, config: Config, skipped: dict[str, str]) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from trellisnet.training.ablation import ABLATIONS  # noqa: PLC0415

    metric = config.about.metric or "perplexity"
    table = Table("", "parameters", f"test {metric}", "change", "paper", "paper's change", box=None, pad_edge=False)
    results = {}
    for ablation in ABLATIONS:
        path = folder / ablation.name / "result.json"
        if path.exists():
            results[ablation.name] = json.loads(path.read_text(encoding="utf-8"))
    whole = results.get("full", {}).get("metrics", {}).get("test", {}).get(metric)
    for ablation in ABLATIONS:
        paper = f"{ablation.paper_result:.2f}", f"{ablation.paper_result - ABLATIONS[0].paper_result:+.2f}"
        if ablation.name in results:
            result = results[ablation.name]
            value = result["metrics"]["test"][metric]
            change = "" if whole is None else f"{value - whole:+.3f}"
            table.add_row(ablation.title, f"{result['parameters'] / 1e6:.2f}M", f"{value:.3f}", change, *paper)
        elif ablation.name in skipped:
            table.add_row(ablation.title, "", f"({skipped[ablation.name]})", "", *paper)
    console = Console()
    console.width = max(console.width, 110)
    console.print(table)
    console.print("The paper's column is word-level Penn Treebank, perplexity, 24M parameters.", highlight=False)
