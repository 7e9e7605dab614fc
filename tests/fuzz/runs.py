"""The fuzzes, and how often each is called."""

from __future__ import annotations

import sys
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
SAID = 5_000  # calls from one line of progress to the next


def fuzz_calls(count: int, seed: int, folder: Path) -> Report:
    """Make at least `count` calls of Python."""
    draw, report, known = Draw(seed), Report(), files.Files(_new(folder, "calls"))

    def call() -> None:
        torch.manual_seed(draw.randrange(2**31))
        if draw.chance(1 / OF_FILES):
            _any(draw, files.FUZZES)(draw, report, known)
        else:
            _any(draw, FUZZES)(draw, report)

    return _until(count, report, call)


def fuzz_lines(count: int, seed: int, folder: Path) -> Report:
    """Run `count` command lines in this process."""
    draw, report, known = Draw(seed), Report(), files.Files(_new(folder, "lines"))
    return _until(count, report, lambda: lines.lines(draw, report, known))


def _until(count: int, report: Report, call: Callable[[], None]) -> Report:
    """Call until there are `count` verdicts, or an interrupt: what was found so far counts."""
    said = SAID
    try:
        while (done := sum(report.counts.values())) < count:
            if done >= said:
                print(f"{done} of {count}, {len(report.findings)} findings", file=sys.stderr, flush=True)
                said += SAID
            call()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    return report


def _any(draw: Draw, fuzzes: dict[Any, int]) -> Any:
    return draw.choices(list(fuzzes), list(fuzzes.values()))[0]


def _new(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name
