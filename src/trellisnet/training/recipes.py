"""Recipes: experiments as YAML files, which can extend each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trellisnet.core.checks import suggestion

FOLDER = Path(__file__).parents[1] / "recipes"


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_recipe(name: str, _extended_by: tuple[str, ...] = ()) -> dict[str, Any]:
    """A recipe by its name, or by the path of a YAML file of the user's; what it extends is merged in.

    A key `extends` names another recipe, or a file beside this one, whose values hold wherever this one says nothing.
    """
    import yaml  # noqa: PLC0415

    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file():
        if path.parent == FOLDER:
            raise ValueError(f"unknown recipe {name!r}{suggestion(name, recipe_names())}; see `trellisnet recipes`")
        raise FileNotFoundError(f"recipe {path} not found")
    if name in _extended_by:
        raise ValueError(f"recipe {name!r} extends itself: {' -> '.join((*_extended_by, name))}")
    try:
        own = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"recipe {path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(own, dict):
        raise ValueError(f"recipe {path} must be a mapping with the keys about, data, model and training")
    own.pop("version", None)  # a run's config.yaml is a recipe too
    parent = own.pop("extends", None)
    if parent is None:
        return own
    beside = path.parent / str(parent)
    base = load_recipe(str(beside) if beside.is_file() else str(parent), (*_extended_by, name))
    return merged(base, own)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values of `base` with those of `changes` in their places.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(value, Mapping) and isinstance(old, Mapping)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result
