"""The command line: `trellisnet COMMAND ...`. A command is a typed function in `trellisnet.commands`.

Help and flags come from the functions' signatures and docstrings (`commands/arguments.py`). Only the command asked for
is imported, and torch only when it starts to work, so that help and mistakes are answered at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

COMMANDS = {
    "train": "train a recipe, or continue a run",
    "evaluate": "evaluate a trained model, on any split and by any protocol",
    "predict": "write predictions of a trained model for new data to a file",
    "generate": "continue prompts with a trained language model",
    "recipes": "list the recipes, with the paper's results and sizes",
    "ablate": "train a recipe without its ingredients, one at a time (table 6 of the paper)",
    "compare": "compare several runs, as a table and a plot",
    "import-authors": "convert a checkpoint of the authors' code to a model",
    "bench": "measure speed and memory on this machine",
}
USER_ERROR = 2


class UsageError(Exception):
    """Something about the arguments that the user can correct."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, or 2 after a message of one line about what went wrong."""
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
    try:
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
        elif not isinstance(error, UsageError):  # which every process of torchrun reports alike
            print(f"trellisnet, process {rank}: {message}", file=sys.stderr)
        return USER_ERROR


def run(command: str, arguments: list[str]) -> int | None:
    """Parse a command's arguments and call it."""
    from trellisnet.core.checks import suggestion  # noqa: PLC0415

    if command not in COMMANDS:
        raise UsageError(f"unknown command {command!r}{suggestion(command, COMMANDS)}; see `trellisnet --help`")
    name = command.replace("-", "_")
    function: Callable[..., int | None] = getattr(import_module(f"trellisnet.commands.{name}"), name)
    return function(**parse(command, function, arguments))


def parse(command: str, function: Callable[..., Any], arguments: Sequence[str]) -> dict[str, Any]:
    """The arguments of a command's function from those of the command line; what is wrong with them is a UsageError."""
    from trellisnet.commands import arguments as reading  # noqa: PLC0415

    try:
        return reading.parse(command, function, arguments)
    except Exception as error:
        raise UsageError(f"{error} (see `trellisnet {command} --help`)") from error


def overview() -> str:
    """What `trellisnet --help` says."""
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
