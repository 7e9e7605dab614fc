"""Element-wise work of the cells: compiled into single kernels where that pays, eager otherwise.

On a GPU a cell is a dozen small kernels, which `torch.compile` fuses into one. On a CPU the in-place operations of
`cells.py` are as fast as the code the compiler makes of them (`benchmarks/fusion.py`), without its
seconds of compilation, so they run as they are unless `set_fusion("always")` says otherwise.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from trellisnet.core.cells import InPlaceCell
from trellisnet.core.checks import one_of

_mode = ["auto"]  # a list, so that it can be set


def set_fusion(mode: str) -> None:
    """Choose when cells are compiled: "auto" (on a GPU with a working compiler), "always" or "never"."""
    _mode[0] = one_of("mode", mode, ("auto", "always", "never"))


def in_place_functions(cell: InPlaceCell, device: torch.device) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The cell's forward and backward for tensors on that device."""
    if _mode[0] == "always" or (_mode[0] == "auto" and device.type == "cuda" and _has_triton()):
        return _compiled(cell)
    return cell.forward_, cell.backward_


@lru_cache
def _compiled(cell: InPlaceCell) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return tuple(torch.compile(f, dynamic=True) for f in (cell.forward_, cell.backward_))  # type: ignore[return-value]


@lru_cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
