"""Runs that outlive their processes: resumed by another number of them, or started again by torchrun."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trellisnet.models.body import BATCH_DIM
from trellisnet.training.checkpoints import set_generators
from trellisnet.training.distribution import Workers
from trellisnet.training.runs import ENVIRONMENT, TASK, Run, launch_id, read_json


def launched_run(name: str, folder: Path | None) -> Path | None:
    """The run that an earlier start of this process by the same torchrun created, which is to be resumed; or None.

    torchrun starts all processes again, with the same command, after one has died and when nodes join or leave.

    Args:
        name: of the recipe, for runs in `runs/NAME-N`.
        folder: the folder of the run, if the command names one.
    """
    launch = launch_id()
    if launch is None:
        return None
    numbered = [path for path in Path("runs").glob(f"{name}-*") if path.name.removeprefix(f"{name}-").isdigit()]
    latest_first = sorted(numbered, key=lambda path: int(path.name.rpartition("-")[2]), reverse=True)
    for path in latest_first if folder is None else [folder]:
        started = Run.is_in(path) and (path / TASK).is_file()
        if started and (read_json(path / ENVIRONMENT) or {}).get("launch") == launch:
            return path
    return None


def restore_own(
    saved: Sequence[Mapping[str, Any]], workers: Workers, seeds: Sequence[int], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Restore what each process has of its own; return the packed states that it carries.

    Args:
        saved: the states and generators of the processes that saved them.
        workers: the processes that resume.
        seeds: numbers that seed the random generators anew if there is another number of processes.
        say: reports that.
    """
    rank, count = workers.rank, workers.count
    if len(saved) == count:
        set_generators(saved[rank]["generators"], workers.device)
        own: list[dict[str, Any]] = saved[rank]["carried"]
        return own
    say(f"{count} instead of {len(saved)} processes: from here on equal up to rounding only")
    (word,) = np.random.SeedSequence([*seeds, rank, count]).generate_state(1, np.uint64)
    torch.manual_seed(int(word) >> 1)  # torch takes 63 bits
    return share_of([each["carried"] for each in saved], rank, count)


def share_of(saved: Sequence[Sequence[Mapping[str, Any]]], rank: int, count: int) -> list[dict[str, Any]]:
    """The packed states of process `rank` of `count`, from those that another number of processes saved.

    Processes have equal, contiguous shares of the rows of a batch, in the order of their ranks, and each divides its
    share in the same way to accumulate gradients. So the states of all rows are joined and divided again.
    """
    parts = len(saved[0])
    packed = list(chain.from_iterable(saved))
    leaves = [_divided(same, parts * count) for same in zip(*(state["leaves"] for state in packed), strict=True)]
    return [
        {"leaves": [leaf[i] for leaf in leaves], "structure": packed[0]["structure"]}
        for i in range(rank * parts, (rank + 1) * parts)
    ]


def _divided(leaf: Sequence[Any], parts: int) -> Sequence[Any]:
    """A leaf of the states of consecutive rows, for another number of consecutive rows."""
    if not isinstance(leaf[0], Tensor):
        return [leaf[0]] * parts  # not of the rows, but of the structure: the same in all
    return [part.contiguous() for part in torch.cat(list(leaf), BATCH_DIM).tensor_split(parts, BATCH_DIM)]
