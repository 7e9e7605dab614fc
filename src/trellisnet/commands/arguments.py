"""The arguments of a command, from the signature and the docstring of its function.

A parameter before the `*` of the signature is a positional argument: a list takes one or more, a default makes it
optional. A parameter after the `*` is a flag; `from_` is the flag `--from`, because Python reserves the word. A
parameter `config` takes a recipe and the flags that change it; a parameter `flags` takes these flags as texts, for
commands that read a recipe several times.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

from docstring_parser import parse as parse_docstring
from jsonargparse import ArgumentParser

from trellisnet.commands.experiment import add_options, read_experiment
from trellisnet.core.checks import suggestion
from trellisnet.training.config import documented

HELP = ("-h", "--help")
OF_RECIPES = ("config", "flags")  # parameters for the flags of a recipe


def parse(command: str, function: Callable[..., Any], arguments: Iterable[str]) -> dict[str, Any]:
    """Parse the command line to the arguments of a command's function; print help and exit if requested."""
    arguments = list(arguments)
    flags, words = split([argument for argument in arguments if argument not in HELP])
    parameters = {name.rstrip("_"): each for name, each in inspect.signature(function).parameters.items()}
    parser = make_parser(command, function)
    own = [f"--{name}={text}" for name, text in flags if name in parameters]
    others = {name: text for name, text in flags if name not in parameters}
    known = [f"--{name}" for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
    if reads := [name for name in OF_RECIPES if name in parameters]:
        known.remove(f"--{reads[0]}")
        if set(HELP) & set(arguments):
            add_options(parser, words[0] if words else None, others)
    for flag in others:
        if not reads or (reads == ["flags"] and "." not in flag):
            raise ValueError(f"unknown flag --{flag}{suggestion(f'--{flag}', known)}")
    if set(HELP) & set(arguments):
        print(re.sub(r", --[\w.]+\+ \S+", "", parser.format_help()))  # jsonargparse's --list+ ITEM is not offered
        raise SystemExit(0)
    given = parser.parse_args([*own, *words]).as_dict()
    if "config" in parameters:
        given["config"] = read_experiment(given, others, known)
    if "flags" in parameters:
        given["flags"] = others
    return {parameters[name].name if name in parameters else name: value for name, value in given.items()}


def split(arguments: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Flags with their values, and the other words.

    Every flag has exactly one value. So the recipe can be found among the words before its flags are known.

    >>> split(["demo", "--to", "here", "--model.body=gru"])
    ([('to', 'here'), ('model.body', 'gru')], ['demo'])
    """
    flags, words, rest = [], [], iter(arguments)
    for argument in rest:
        if not argument.startswith("--"):
            words.append(argument)
            continue
        name, has_value, text = argument[2:].partition("=")
        if not has_value:
            following = next(rest, None)
            if following is None or following.startswith("--"):
                got = "nothing" if following is None else f"{following}; write --{name}=VALUE if that is the value"
                raise ValueError(f"--{name} needs a value: expected one argument, got {got}")
            text = following
        flags.append((name, text))
    return flags, words


def make_parser(command: str, function: Callable[..., Any]) -> ArgumentParser:
    """A parser for the function's own arguments, without the options of an experiment."""
    parsed = parse_docstring(inspect.getdoc(function) or "")
    description = "\n\n".join(text for text in (parsed.short_description, parsed.long_description) if text)
    usage = [f"trellisnet {command}", "[--KEY VALUE ...]"]
    parser = ArgumentParser(exit_on_error=False, description=description)
    hints, texts = get_type_hints(function), documented(function)
    for name, parameter in inspect.signature(function).parameters.items():
        if name in OF_RECIPES:
            continue
        needed = parameter.default is parameter.empty
        options: dict[str, Any] = {"help": texts[name].replace("%", "%%")}
        if parameter.kind is parameter.KEYWORD_ONLY:
            options |= {"type": hints[name], "required": True} if needed else {"type": hints[name]}
            options |= {} if needed else {"default": parameter.default}
            parser.add_argument(f"--{name.rstrip('_')}", **options)
            usage += [f"--{name} {name.upper()}"] if needed else []
            continue
        several = hints[name] == list[str]
        word = name.upper().removesuffix("S") if several else name.upper()
        options |= {"nargs": "+"} if several else {} if needed else {"nargs": "?", "default": parameter.default}
        parser.add_argument(name, type=str, metavar=word, **options)
        usage.append(f"{word} [{word} ...]" if several else word if needed else f"[{word}]")
    parser.usage = " ".join(usage)
    return parser
