"""The command line: `trellisnet COMMAND ...`. A command is a typed function in `trellisnet.commands`.

Help and flags come from the functions' signatures and docstrings (`commands/arguments.py`). Only the
requested command is imported, and torch only when the command runs, so that help and usage errors are fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

COMMANDS = {
    "train": "train a recipe, or continue a run",
    "evaluate": "evaluate a trained model on any split, with any protocol",
    "predict": "write predictions of a trained model for new data to a file",
    "generate": "continue prompts with a trained language model",
    "translate": "translate lines of text with a trained translator",
    "explain": "say what a recipe or a run costs: receptive field, cells, multiply-adds, memory",
    "export": "write a trained model to a file for onnxruntime or torch",
    "recipes": "list the recipes, with the paper's results and sizes",
    "ablate": "train a recipe with one ingredient removed at a time (table 6 of the paper)",
    "versus": "compare bodies on a recipe: equal time, equal size, each with its best learning rate",
    "tune": "search for good options of a recipe; the best ones become a recipe",
    "search-cell": "search for a cell by evolution or at random; the best one becomes a YAML file",
    "tables": "print the paper's tables: published results, ours, and the commands that train them",
    "compare": "compare several runs in a table and charts",
    "import-authors": "convert a checkpoint of the authors' code to a model",
    "bench": "measure speed and memory on this machine",
}
USER_ERROR = 2


class UsageError(Exception):
    """An error in the command line arguments."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code: 0, 2 after an error message of one line, 130 after an interruption."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    if debug:
        arguments.remove("--debug")
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if arguments[0] == "--version":
        from trellisnet import __version__  # noqa: PLC0415

        print(__version__)
        return 0
    from trellisnet.training.signals import handled  # noqa: PLC0415

    try:
        with handled(stop):
            return int(run(arguments[0], arguments[1:]) or 0)
    except KeyboardInterrupt:
        print("trellisnet: interrupted", file=sys.stderr)
        return 130
    except (UsageError, ValueError, TypeError, OSError, RuntimeError, ImportError, MemoryError, LookupError) as error:
        if debug:
            raise
        rank = os.environ.get("LOCAL_RANK", "0")
        message = " ".join(str(error).split()) or type(error).__name__
        if rank == "0":
            print(f"trellisnet: {message}", file=sys.stderr)
        elif not isinstance(error, UsageError):  # every process of torchrun has the same usage errors
            print(f"trellisnet, process {rank}: {message}", file=sys.stderr)
        return USER_ERROR


def stop(number: int, frame: object) -> NoReturn:
    """On SIGINT and SIGTERM: interrupt what the command does; a training run completes its step first."""
    raise KeyboardInterrupt


def run(command: str, arguments: list[str]) -> int | None:
    """Parse a command's arguments and call it."""
    from trellisnet.core.checks import suggestion  # noqa: PLC0415

    if command not in COMMANDS:
        raise UsageError(f"unknown command {command!r}{suggestion(command, COMMANDS)}; see `trellisnet --help`")
    name = command.replace("-", "_")
    function: Callable[..., int | None] = getattr(import_module(f"trellisnet.commands.{name}"), name)
    return function(**parse(command, function, arguments))


def parse(command: str, function: Callable[..., Any], arguments: Sequence[str]) -> dict[str, Any]:
    """Parse the command line to the arguments of a command's function; a UsageError if they are wrong."""
    from trellisnet.commands import arguments as reading  # noqa: PLC0415

    try:
        return reading.parse(command, function, arguments)
    except Exception as error:
        raise UsageError(f"{error} (see `trellisnet {command} --help`)") from error


def overview() -> str:
    """The text of `trellisnet --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: trellisnet COMMAND ...",
            "",
            "Trellis networks: train, evaluate, generate.",
            "",
            *lines,
            "",
            "`trellisnet COMMAND --help` lists its arguments; `--debug` shows the traceback of an error.",
        ]
    )


def script() -> NoReturn:
    """The entry point of the installed command."""
    sys.exit(main())
