"""Make a configuration from a recipe and the flags that change it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from jsonargparse import ArgumentParser

from trellisnet.core.checks import one_of, suggestion
from trellisnet.data.kinds import KINDS
from trellisnet.models.bodies import BODIES
from trellisnet.training.config import Config, documented
from trellisnet.training.reading import SECTIONS, Values, checked, make_config, section_kinds, unknown_key
from trellisnet.training.recipes import load_recipe, merged, with_body, without_width
from trellisnet.training.values import from_text, load_text

OPTIONS = "data.options."


def read_experiment(given: Mapping[str, Any], flags: Mapping[str, str], known: Iterable[str]) -> Config | None:
    """The configuration of a command that takes a recipe; None if the command continues a run instead.

    Args:
        given: the command's own arguments, including `recipe` and `resume`.
        flags: all other flags, by name without dashes.
        known: the command's own flags, for messages.
    """
    recipe, resume = given["recipe"], given.get("resume")
    if resume is not None:
        own = [name for name, value in given.items() if name not in ("recipe", "resume") and value is not None]
        if others := [*([] if recipe is None else ["RECIPE"]), *(f"--{flag}" for flag in (*own, *flags))]:
            raise ValueError(f"--resume continues a run with its own values: {others[0]} cannot be changed")
        return None
    if recipe is None:
        raise ValueError("RECIPE is needed, such as `demo`" + (", or --resume RUN" if "resume" in given else ""))
    values, gone = recipe_values(recipe, flags)
    where = f"recipe {recipe} with these flags" if flags else f"recipe {recipe}"
    config = make_config(with_flags(values, flags, known), where)
    if gone and os.environ.get("LOCAL_RANK", "0") == "0":
        note = f"options of the recipe that do not apply to the body {config.model.body!r}"
        print(f"note: {note}: {', '.join(gone)}", file=sys.stderr)
    return config


def recipe_values(recipe: str | None, flags: Mapping[str, str]) -> tuple[Values, list[str]]:
    """The values of a recipe for the body and the dataset that the flags name, and the keys that do not apply."""
    values: Values = {} if recipe is None else checked(load_recipe(recipe), f"recipe {recipe}")
    gone: list[str] = []
    if "model.body" in flags:
        values, gone = with_body(values, one_of("--model.body", flags["model.body"], BODIES))
    if "data.name" in flags:
        name = one_of("--data.name", flags["data.name"], KINDS)
        values = checked(merged(values, {"data": {"name": name}}), f"recipe {recipe} on {name}")
    return values, gone


def with_flags(values: Values, flags: Mapping[str, str], known: Iterable[str] = ()) -> Values:
    """The values of a recipe, overridden by those of the flags."""
    changed = {section: dict(values.get(section, {})) for section in SECTIONS}
    kinds = section_kinds(changed, "flags")
    changed["model"] = without_width(
        changed["model"], {flag.removeprefix("model."): text for flag, text in flags.items()}
    )
    hints = {f"{section}.{name}": hint for section in SECTIONS for name, hint in get_type_hints(kinds[section]).items()}
    for flag, text in flags.items():
        section, _, name = flag.partition(".")
        if flag.startswith(OPTIONS):
            options = changed["data"].get("options", {})
            changed["data"]["options"] = {**options, flag.removeprefix(OPTIONS): load_text(text)}
        elif flag in hints:
            changed[section][name] = from_text(f"--{flag}", hints[flag], text)
        elif section in SECTIONS:
            raise ValueError(f"unknown flag --{unknown_key(section, name, changed)}")
        else:
            raise ValueError(
                f"unknown flag --{flag}{suggestion(f'--{flag}', [*known, *(f'--{key}' for key in hints)])}"
            )
    return changed


def add_options(parser: ArgumentParser, recipe: str | None, flags: Mapping[str, str]) -> None:
    """Add all options of a recipe for its body and data to `--help`, with the recipe's values as defaults."""
    values, _ = recipe_values(recipe, flags)
    values = with_flags(values, flags)
    for section, kind in section_kinds(values, "flags").items():
        group = parser.add_argument_group(f"{section}, {documented(Config)[section].removesuffix('.')}")
        hints, texts = get_type_hints(kind), documented(kind)
        for option in fields(kind):
            default = option.default if option.default_factory is MISSING else option.default_factory()
            default = values[section].get(option.name, default)
            shown: dict[str, Any] = {"required": True} if default is MISSING else {"default": default}
            text = texts[option.name].replace("%", "%%")
            group.add_argument(f"--{section}.{option.name}", type=hints[option.name], help=text, **shown)
