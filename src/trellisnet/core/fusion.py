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
from torch import Tensor

from trellisnet.core.cells import InPlaceCell
from trellisnet.core.checks import one_of

_mode = ["auto"]  # a list, so that it can be set


def set_fusion(mode: str) -> None:
    """Choose when cells are compiled: "auto" (on a GPU with a working compiler), "always" or "never"."""
    _mode[0] = one_of("mode", mode, ("auto", "always", "never"))


def is_fused(device: torch.device) -> bool:
    """Whether cells are compiled for tensors on that device."""
    return _mode[0] == "always" or (_mode[0] == "auto" and device.type == "cuda" and _has_triton())


def in_place_functions(cell: InPlaceCell, device: torch.device) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The cell's forward (of pre-activations, memory and the two outputs) and backward on that device."""
    return _functions(cell, is_fused(device))


@lru_cache
def _functions(cell: InPlaceCell, fused: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward_(pre: Tensor, *state: Tensor | None) -> None:
        cell.forward_(cell.views(pre), *state)  # type: ignore[arg-type]

    if not fused:
        return forward_, cell.backward_
    return torch.compile(forward_, dynamic=True), torch.compile(cell.backward_, dynamic=True)


@lru_cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
