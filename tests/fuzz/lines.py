"""Fuzz of the command line: every command, with words and flags that are right, wrong, or cut."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fuzz.files import Files, damage
from fuzz.harness import Draw, Hang, Report, captured, limited, trace
from trellisnet.cli import COMMANDS, main

RECIPES = ["demo", "adding", "my-text", "my-series", "my-labels", "word-ptb", "copy-memory", "jsb-small", "nonsense"]
VALUES = [
    "0",
    "-1",
    "1",
    "3",
    "nan",
    "inf",
    "true",
    "null",
    "",
    "[]",
    "[1,2]",
    "{}",
    "abc",
    "1e999",
    "#",
    "'",
    '"',
    "{a",
]
VALUES += [
    "9" * 50,
    "*",
    "&a",
    "!!python/name:os.system",
    "1_000",
    "0x10",
    "~",
    "%",
    ",",
    "\t",
    "\x00",
    "é",
    "../..",
    ": ",
]
FLAGS = ["model.hidden_size", "model.num_layers", "model.body", "model.cell", "model.dilation", "model.head"]
FLAGS += ["model.parameters", "training.epochs", "training.batch_size", "training.learning_rate", "training.depths"]
FLAGS += [
    "training.optimiser",
    "training.schedule",
    "training.minutes",
    "training.device",
    "training.clip",
    "data.name",
]
FLAGS += ["training.seed", "training.warmup", "data.options.path", "data.options.steps", "data.options.separator"]
FLAGS += ["data.root", "about.title", "nonsense", "model.nonsense", "to", "seed", "beams", "prompt", "split", "which"]
FLAGS += ["steps", "batch_size", "tokens", "format", "trials", "minutes", "bodies", "depth", "temperature", "top_k"]
# commands that train or measure for long run with arguments that let them fail before
SLOW = ("train", "ablate", "versus", "tune", "bench", "evaluate", "generate", "translate", "export")


def lines(draw: Draw, report: Report, files: Files) -> None:
    """One command line: it must end with 0, or with 2 and one line on stderr."""
    command = draw.choice([*COMMANDS, *COMMANDS, "nonsense", "", "--version", "-h"])
    words = [draw.choice([*RECIPES, str(files.run), str(files.recipe), str(files.folder), *VALUES])]
    if command == "predict":
        words = [str(files.run), str(draw.choice([files.table, files.text, damage(draw, files.table, _odd(files))]))]
    words = words if draw.chance(0.85) else draw.choice([[], words * 2])
    for _ in range(draw.randint(1, 4)):
        flag, value = draw.choice(FLAGS), draw.choice([*VALUES, str(files.run), str(files.table)])
        words += draw.choice([[f"--{flag}", value], [f"--{flag}={value}"], [f"--{flag}"]])
    if command in SLOW:
        words += ["--training.batch_size", "none"] if draw.chance(0.5) else ["--debugg", "1"]
    judge_line(report, [command, *words], files)


def _odd(files: Files) -> Path:
    return files.folder / "damaged-table.csv"


def judge_line(report: Report, arguments: list[str], files: Files) -> None:
    """Run a command line in an empty folder; keep what must not happen."""
    empty, home = files.folder / "empty", Path.cwd()
    shutil.rmtree(empty, ignore_errors=True)
    empty.mkdir()
    os.chdir(empty)
    try:
        with captured() as (_, err), limited():
            try:
                code = main(arguments)
            except SystemExit as exit_:
                code = exit_.code or 0  # type: ignore[assignment]
    except (Exception, Hang) as error:
        report.add(repr(arguments), f"{type(error).__name__}: {str(error)[:150]}", trace(error))
        return
    finally:
        os.chdir(home)
    said = err.getvalue().strip().splitlines()
    if code not in (0, 2) or (code == 2 and (not said or not said[-1].startswith("trellisnet: "))):
        report.add(repr(arguments), f"exit code {code} and {said[-1:]}")
    elif code == 2 and arguments[0] != "train" and len(said) > 1:
        report.add(repr(arguments), f"{len(said)} lines on stderr: {said[0][:100]}")
    elif code == 2 and any(
        word in said[-1] for word in ("object has no attribute", "not supported between", "'NoneType' object")
    ):
        report.add(repr(arguments), f"a message of Python itself: {said[-1][:200]}")
    else:
        report.counts["works" if code == 0 else "refused"] += 1
