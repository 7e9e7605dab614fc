"""Values of a configuration, from YAML or from the text of a flag, checked against their declared types."""

from __future__ import annotations

import json
import re
from argparse import ArgumentError
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import yaml

from trellisnet.core.checks import suggestion

RENAMED = {"one-cycle": "cosine"}  # values that earlier versions accepted, and their current names
BOOLEAN, FLOAT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:float"


class _Loader(yaml.SafeLoader):
    """YAML in which only true and false are booleans (not yes, no, on, off), and 1e-3 is a number."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in patterns if tag not in (BOOLEAN, FLOAT)]
    for first, patterns in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(BOOLEAN, re.compile(r"^(?:true|True|false|False)$"), list("tTfF"))
_Loader.add_implicit_resolver(
    FLOAT, re.compile(r"^[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?$"), list("-+.0123456789")
)


def load_yaml(text: str) -> Any:
    """Parse a YAML text."""
    return yaml.load(text, _Loader)


def load_text(text: str) -> Any:
    """Parse the value of a flag as YAML; return the text itself if it is not valid YAML."""
    try:
        value = load_yaml(text)
    except yaml.YAMLError:
        return text
    return text if value is None and text.startswith("#") else value  # on a command line # is no comment


def typed(name: str, hint: Any, value: Any) -> Any:
    """Return the value as type `hint`; a ValueError if it has another type, such as a number written as text."""
    choices = _choices(hint)
    if type(value) in choices and value == value:  # noqa: PLR0124 (nan is no value)
        return value
    if isinstance(value, str) and any(_lists_text(choice) for choice in choices):
        return [value]  # one item: a text is also a sequence, of its letters
    if get_origin(hint) is dict and isinstance(value, Mapping):
        return dict(value)  # options of a dataset; the dataset checks them
    if value is not None:
        try:
            parsed = _parser(hint).parse_object({"value": deepcopy(value)})["value"]
        except ArgumentError:
            parsed = None
        if parsed is not None and _as_lists(parsed) == _as_lists(value):  # jsonargparse converts "8" to 8
            return parsed
    renamed = isinstance(value, str) and value in RENAMED
    near = f": write {RENAMED[value]}" if renamed else suggestion(str(value), map(str, _literals(hint)))
    raise ValueError(f"{name} must be {_expected(hint)}, got {value!r}{near}")


def from_text(name: str, hint: Any, text: str) -> Any:
    """The value of a flag: the text itself if the type is text, otherwise parsed as YAML and checked by `typed`."""
    choices = _choices(hint)
    if str in choices:
        return None if text == "null" and NoneType in choices else text
    return typed(name, hint, load_text(text))


@cache
def _parser(hint: Any) -> Any:
    from jsonargparse import ArgumentParser  # noqa: PLC0415

    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=hint)
    return parser


def _choices(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the single type."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _lists_text(hint: Any) -> bool:
    return get_origin(hint) in (list, Sequence) and get_args(hint) == (str,)


def _as_lists(value: Any) -> Any:
    return [_as_lists(each) for each in value] if isinstance(value, (list, tuple)) else value


def _literals(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(literal for part in get_args(hint) for literal in _literals(part))


def _expected(hint: Any) -> str:
    """A description of a type for messages.

    >>> _expected(int | list[int]), _expected(list[tuple[float, int]] | None)
    ('an integer or a list of integers', 'a list of [number, integer] or null')
    """
    words = {int: "an integer", float: "a number", bool: "true or false", str: "text", NoneType: "null"}
    if hint in words:
        return words[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if origin is dict:
        return "a mapping"
    if origin is tuple:
        return f"[{', '.join(_expected(part).removeprefix('a ').removeprefix('an ') for part in parts)}]"
    if len(parts) > 1:
        return " or ".join(map(_expected, parts))
    item = _expected(parts[0])
    return f"a list of {item if item.startswith('[') else item.removeprefix('a ').removeprefix('an ') + 's'}"


def as_text(value: Any) -> str:
    """A value as the text of a flag.

    >>> [as_text(value) for value in (None, True, 24e6, 1 / 3, "lstm", [1, 2])]
    ['null', 'true', '2.4e+07', '0.3333333333333333', 'lstm', '[1, 2]']
    """
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return value if isinstance(value, str) else json.dumps(value)
