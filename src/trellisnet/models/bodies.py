"""Every body by its name. Imports nothing heavy: a body is imported when it is asked for."""

from __future__ import annotations

import inspect
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trellisnet.core.checks import one_of, suggestion

if TYPE_CHECKING:
    from torch import nn

# The file of a body, and the names of its module and of the dataclass that declares its options there. The trellis has
# its options in a file of their own, without torch, so that `--help` is quick.
BODIES = {
    "trellis": ("trellisnet.core.trellis", "TrellisNet", "TrellisOptions"),
    "lstm": ("trellisnet.baselines.rnn", "LstmBody", "RnnOptions"),
    "gru": ("trellisnet.baselines.rnn", "GruBody", "RnnOptions"),
}


def body_options(name: str) -> type[Any]:
    """The dataclass of the options of a body."""
    file, _, options = BODIES[one_of("body", name, BODIES)]
    kind: type[Any] = getattr(import_module("trellisnet.core.options" if name == "trellis" else file), options)
    return kind


def make_body(name: str, input_size: int, **options: Any) -> nn.Module:
    """The body of that name; `options` are its own, and `device` and `dtype`."""
    file, body, _ = BODIES[one_of("body", name, BODIES)]
    known = {*(field.name for field in fields(body_options(name))), "device", "dtype"}
    for option in options:
        if option not in known:
            raise TypeError(f"{option} is not an option of the body {name!r}{suggestion(option, known)}")
    module: nn.Module = getattr(import_module(file), body)(input_size, **options)
    return module


def chooses_depth(name: str) -> bool:
    """Whether a call of the body of that name can choose its depth."""
    file, body, _ = BODIES[one_of("body", name, BODIES)]
    return "depth" in inspect.signature(getattr(import_module(file), body).forward).parameters


def name_of(body: nn.Module) -> str | None:
    """The name of a body that `make_body` makes; None for a body of the user's own."""
    kind = (type(body).__module__, type(body).__name__)
    return next((name for name, (file, body_name, _) in BODIES.items() if (file, body_name) == kind), None)


def options_of(body: nn.Module) -> dict[str, Any]:
    """The options that a body of this package has, as its attributes have them."""
    name = name_of(body)
    return {} if name is None else {field.name: getattr(body, field.name) for field in fields(body_options(name))}
