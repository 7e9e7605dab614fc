"""Recipes: experiments as YAML files, which can extend each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from trellisnet.core.checks import suggestion
from trellisnet.data.kinds import KINDS
from trellisnet.models.bodies import BODIES, body_options
from trellisnet.training.config import DataConfig, around_body
from trellisnet.training.reading import Values, checked, current_form, read_mapping

FOLDER = Path(__file__).parents[1] / "recipes"
SPACE = "tune"  # the section with the search space


def recipe_names() -> list[str]:
    """The names of the recipes in the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_recipe(name: str) -> dict[str, Any]:
    """The values of a recipe, by name, path of a YAML file, or folder of a run; unchecked, see `reading.checked`.

    The key `extends` names another recipe, or a file in the same folder; its values are the defaults. A run's
    config.yaml is a recipe too.
    """
    return {section: content for section, content in _load(name).items() if section != SPACE}


def recipe_space(name: str) -> Any:
    """The search space of a recipe, which only `trellisnet tune` reads; None if it has none."""
    return _load(name).get(SPACE)


def _load(name: str, _extended_by: tuple[str, ...] = ()) -> dict[str, Any]:
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file() and (config := Path(name) / "config.yaml").is_file():
        path = config
    if not path.is_file():
        if path.parent == FOLDER:
            raise ValueError(f"unknown recipe {name!r}{suggestion(name, recipe_names())}; see `trellisnet recipes`")
        raise FileNotFoundError(f"recipe {path} not found")
    if name in _extended_by:
        raise ValueError(f"recipe {name!r} extends itself: {' -> '.join((*_extended_by, name))}")
    own = read_mapping(path)
    if "version" in own:
        own = current_form(own, str(path))
        if "options" in own["model"]:
            raise ValueError(f"{path.parent} was started from Python: only the program has its model and data")
    parent = own.pop("extends", None)
    if parent is None:
        return own
    beside = path.parent / str(parent)
    base = _load(str(beside) if beside.is_file() else str(parent), (*_extended_by, name))
    space = {SPACE: base.pop(SPACE)} if SPACE in base else {}
    model = own.get("model")
    if isinstance(model, dict) and model.get("body") in list(BODIES):
        base, _ = with_body(checked(base, f"recipe {parent}"), model["body"])
    if isinstance(model, dict) and isinstance(base.get("model"), dict):
        base = {**base, "model": without_width(base["model"], model)}
    return {**space, **merged(base, own)}  # a search space replaces that of the other recipe


def without_width(model: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A model's options without its width, if the changes give the width in the other way: by `parameters`.

    >>> without_width({"hidden_size": 8, "num_layers": 2}, {"parameters": 1e6})
    {'num_layers': 2}
    """
    others = {"hidden_size": "parameters", "parameters": "hidden_size"}
    given = {others.get(name) for name, value in changes.items() if value is not None}
    return {name: value for name, value in model.items() if name not in given}


def with_body(values: Values, body: str) -> tuple[Values, list[str]]:
    """The checked values of a recipe with another body, and the keys that do not apply to it.

    Of the options of the recipe's own body only `hidden_size` is kept, because every body has a width. `aux_weight` and
    `training.depths` are dropped too, because they refer to layers of the recipe's body. A body that declares all
    options of the recipe's own, as a trellis with attention does, keeps them all.
    """
    model, training = values.get("model", {}), dict(values.get("training", {}))
    own = model.get("body", "trellis")
    if own == body:
        return values, []
    if own == "trellis" and issubclass(body_options(body), body_options(own)):
        return {**values, "model": {**model, "body": body}}, []
    around = around_body(KINDS[values.get("data", {}).get("name", DataConfig.name)])
    stay = {option.name for declared in around for option in fields(declared)} - {"aux_weight"}
    stay |= {option.name for option in fields(body_options(body))} & {"hidden_size"}
    gone = [f"model.{name}" for name, value in model.items() if name not in stay and value is not None]
    if training.pop("depths", None):
        gone.append("training.depths")
    kept = {name: value for name, value in model.items() if name in stay}
    return {**values, "model": {**kept, "body": body}, "training": training}, gone


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values of `base`, overridden by those of `changes`.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(value, Mapping) and isinstance(old, Mapping)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result
