"""The fuzzes, and how often each is called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fuzz import files, lines, models, nets
from fuzz.harness import Draw, Report

FUZZES: dict[Callable[[Draw, Report], None], int] = {
    nets.bodies: 5,
    nets.calls: 5,
    nets.conversions: 2,
    models.language: 4,
    models.generation: 4,
    models.sequences: 4,
    models.translation: 1,
}
OF_FILES = 6  # of as many calls, one reads files or data


def fuzz_calls(count: int, seed: int, folder: Path) -> Report:
    """Make at least `count` calls of Python."""
    draw, report, known = Draw(seed), Report(), files.Files(_new(folder, "calls"))
    while sum(report.counts.values()) < count:
        torch.manual_seed(draw.randrange(2**31))
        if draw.chance(1 / OF_FILES):
            _any(draw, files.FUZZES)(draw, report, known)
        else:
            _any(draw, FUZZES)(draw, report)
    return report


def fuzz_lines(count: int, seed: int, folder: Path) -> Report:
    """Run `count` command lines in this process."""
    draw, report, known = Draw(seed), Report(), files.Files(_new(folder, "lines"))
    for _ in range(count):
        lines.lines(draw, report, known)
    return report


def _any(draw: Draw, fuzzes: dict[Any, int]) -> Any:
    return draw.choices(list(fuzzes), list(fuzzes.values()))[0]


def _new(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name
