"""Make a configuration from a recipe and the flags that change it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from jsonargparse import ArgumentParser

from trellisnet.core.checks import one_of, suggestion
from trellisnet.data.kinds import KINDS
from trellisnet.models.bodies import BODIES
from trellisnet.training.config import Config, DataConfig, documented
from trellisnet.training.reading import (
    SECTIONS,
    Values,
    checked,
    checked_options,
    make_config,
    section_kinds,
    unknown_key,
)
from trellisnet.training.recipes import load_recipe, with_body, without_width
from trellisnet.training.values import from_text

OPTIONS = "data.options."
EPOCHS = "training.epochs"  # the one option that a resumed run may change


def read_experiment(given: Mapping[str, Any], flags: Mapping[str, str], known: Iterable[str]) -> Config | None:
    """The configuration of a command that takes a recipe; of a run that is extended; None if a run is continued.

    Args:
        given: the command's own arguments, including `recipe` and `resume`.
        flags: all other flags, by name without dashes.
        known: the command's own flags, for messages.
    """
    recipe, resume = given["recipe"], given.get("resume")
    if resume is not None:
        own = [name for name, value in given.items() if name not in ("recipe", "resume") and value is not None]
        changed = [flag for flag in (*own, *flags) if flag != EPOCHS]
        if others := [*([] if recipe is None else ["RECIPE"]), *(f"--{flag}" for flag in changed)]:
            raise ValueError(
                f"--resume continues a run with its own values: {others[0]} cannot be changed, only --{EPOCHS}"
            )
        return _extended(resume, flags[EPOCHS]) if EPOCHS in flags else None
    if recipe is None:
        raise ValueError("RECIPE is needed, such as `demo`" + (", or --resume RUN" if "resume" in given else ""))
    values, gone = recipe_values(recipe, flags)
    where = f"recipe {recipe} with these flags" if flags else f"recipe {recipe}"
    config = make_config(with_flags(values, flags, known), where)
    for what, name in (("dataset", config.data.name), ("body", config.model.body)):
        names = [key for key in gone if key.startswith(OPTIONS) == (what == "dataset")]
        if names and os.environ.get("LOCAL_RANK", "0") == "0":
            note = f"options of the recipe that do not apply to the {what} {name!r}"
            print(f"note: {note}: {', '.join(names)}", file=sys.stderr)
    return config


def _extended(run: str, epochs: str) -> Config:
    """The configuration of a run with more epochs."""
    from trellisnet.training.runs import Run  # noqa: PLC0415

    config = Run.open(Path(run)).config
    return replace(config, training=replace(config.training, epochs=from_text(f"--{EPOCHS}", int, epochs)))


def recipe_values(recipe: str | None, flags: Mapping[str, str]) -> tuple[Values, list[str]]:
    """The values of a recipe for the body and the dataset that the flags name, and the keys that do not apply."""
    values: Values = {} if recipe is None else checked(load_recipe(recipe), f"recipe {recipe}")
    gone: list[str] = []
    if "model.body" in flags:
        values, gone = with_body(values, one_of("--model.body", flags["model.body"], BODIES))
    if "data.name" in flags:
        name = one_of("--data.name", flags["data.name"], KINDS)
        values, others = _with_dataset(values, name)
        values, gone = checked(values, f"recipe {recipe} on {name}"), [*gone, *others]
    return values, gone


def _with_dataset(values: Values, name: str) -> tuple[Values, list[str]]:
    """The values of a recipe with another dataset, and the keys of the options that it does not have."""
    from trellisnet.data.registry import dataset_options  # noqa: PLC0415

    options = values.get("data", {}).get("options", {})
    kept = {key: value for key, value in options.items() if key in dataset_options(name)}
    data = {**values.get("data", {}), "name": name, "options": kept}
    return {**values, "data": data}, [f"{OPTIONS}{key}" for key in options if key not in kept]


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
            changed["data"]["options"] = {**options, **_data_option(changed, flag, text)}
        elif flag in hints:
            changed[section][name] = from_text(f"--{flag}", hints[flag], text)
        elif section in SECTIONS:
            raise ValueError(f"unknown flag --{unknown_key(section, name, changed)}")
        else:
            raise ValueError(
                f"unknown flag --{flag}{suggestion(f'--{flag}', [*known, *(f'--{key}' for key in hints)])}"
            )
    return changed


def _data_option(values: Values, flag: str, text: str) -> dict[str, Any]:
    """The option of the dataset that a flag gives, by name."""
    from trellisnet.data.registry import dataset_options  # noqa: PLC0415

    name, key = values["data"].get("name", DataConfig.name), flag.removeprefix(OPTIONS)
    known = dataset_options(name)
    value = from_text(f"--{flag}", known[key].hint, text) if key in known else text
    return checked_options(name, {key: value}, "flags")


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
    _add_data_options(parser, values["data"])


def _add_data_options(parser: ArgumentParser, data: Mapping[str, Any]) -> None:
    from trellisnet.data.registry import dataset_options  # noqa: PLC0415

    name, given = data.get("name", DataConfig.name), data.get("options", {})
    group = parser.add_argument_group(f"data.options, options of the dataset {name}")
    for key, option in dataset_options(name).items():
        default = given.get(key, option.default)
        shown: dict[str, Any] = {"required": True} if option.needed and key not in given else {"default": default}
        group.add_argument(f"--{OPTIONS}{key}", type=option.hint, help=option.help.replace("%", "%%"), **shown)
