"""The command line: `trellisnet COMMAND ...`. A command is a typed function in `trellisnet.commands`.

Help and flags come from the functions' signatures and docstrings. Only the command asked for is imported, and torch
only when it starts to work, so that help and mistakes are answered at once.
"""

from __future__ import annotations

import inspect
import os
import sys
from argparse import SUPPRESS
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

COMMANDS = {
    "train": "train a recipe, or go on with a run",
    "evaluate": "judge a trained model, on any split and by any protocol",
    "predict": "write what a trained model says of new data into a file",
    "generate": "let a trained language model write",
    "recipes": "list the recipes, with the paper's results and sizes",
    "ablate": "train a recipe without its ingredients, one at a time (table 6 of the paper)",
    "compare": "several runs side by side, as a table and a plot",
    "import-authors": "turn a checkpoint of the authors' code into a model",
    "bench": "measure speed and memory on this machine",
}
FIRST = {  # what stands without a flag
    "train": "RECIPE ",
    "evaluate": "RUN ",
    "predict": "RUN --input FILE --output FILE ",
    "generate": "RUN ",
    "ablate": "RECIPE ",
    "compare": "RUN ... ",
    "import-authors": "CHECKPOINT --to FOLDER ",
}
USER_ERROR = 2


class UsageError(Exception):
    """Something about the arguments that the user can mend."""


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
        elif not isinstance(error, UsageError):  # which every process that torchrun started has met
            print(f"trellisnet, process {rank}: {message}", file=sys.stderr)
        return USER_ERROR


def run(command: str, arguments: list[str]) -> int | None:
    """Parse a command's arguments and call it."""
    if command not in COMMANDS:
        from trellisnet.core.checks import suggestion  # noqa: PLC0415

        raise UsageError(f"unknown command {command!r}{suggestion(command, COMMANDS)}; see `trellisnet --help`")
    module = import_module(f"trellisnet.commands.{command.replace('-', '_')}")
    function: Callable[..., int | None] = getattr(module, command.replace("-", "_"))
    prepare: Callable[..., Any] | None = getattr(module, "prepare", None)
    return function(**parse(command, function, arguments, prepare))


def parse(
    command: str, function: Callable[..., Any], arguments: list[str], prepare: Callable[..., Any] | None = None
) -> dict[str, Any]:
    """Arguments of a function from those of the command line.

    Args:
        command: its name.
        function: the command.
        arguments: of the command line.
        prepare: what the module does to its parser before it is used, with the arguments at hand: recipes become
            defaults there.
    """
    from jsonargparse import ArgumentParser  # noqa: PLC0415

    parser = ArgumentParser(
        prog=f"trellisnet {command}",
        usage=f"trellisnet {command} {FIRST.get(command, '')}[--KEY VALUE ...]",
        exit_on_error=False,
        description=(inspect.getdoc(function) or "").split("\nArgs:")[0],
    )
    parser.add_function_arguments(function, as_group=False, fail_untyped=True)
    for action in parser._actions:
        if action.metavar == "CONFIG":  # a file for a part of a recipe: there are recipes for that
            action.help = SUPPRESS
    try:
        if prepare is not None:
            arguments = prepare(parser, arguments)
        parsed = parser.instantiate(parser.parse_args(arguments))
    except SystemExit:  # after --help
        raise
    except Exception as error:
        raise UsageError(f"{error} (see `trellisnet {command} --help`)") from error
    return {name: parsed[name] for name in inspect.signature(function).parameters}


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
            "`trellisnet COMMAND --help` tells more; `--debug` shows the traceback of an error.",
        ]
    )


def script() -> NoReturn:
    """The entry point of the installed command."""
    sys.exit(main())
