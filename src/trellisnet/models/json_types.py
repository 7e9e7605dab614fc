"""The arguments of a model as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, SupportsFloat, SupportsIndex

from torch import nn

from trellisnet.core.cells import CELLS, Cell, ExpressionCell


def to_json_type(value: Any) -> Any:
    """Convert numbers and sequences of any type, such as NumPy's, to JSON types; modules and cells stay."""
    if isinstance(value, Mapping):
        return {name: to_json_type(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_json_type(each) for each in value]
    if isinstance(value, ExpressionCell):
        return value.definition.text  # not the path of its file, so that the folder is complete
    if isinstance(value, Cell):
        return next((name for name, cell in CELLS.items() if type(cell) is type(value)), value)
    if value is None or isinstance(value, (bool, str, nn.Module)):
        return value
    if isinstance(value, SupportsIndex):
        return index(value)
    return float(value) if isinstance(value, SupportsFloat) else value


def class_name(value: Any) -> dict[str, str]:
    """The class of a cell or a module, which stands for it in JSON; a TypeError for anything else."""
    if not isinstance(value, (Cell, nn.Module)):
        raise TypeError(f"a model's arguments must be numbers, texts or lists to be saved, got {value!r}")
    return {"class": type(value).__qualname__, "module": type(value).__module__}
