"""Element-wise work of the cells: compiled into single kernels where that pays, eager otherwise.

On a GPU a cell is a dozen small kernels, which `torch.compile` fuses into one. On a CPU the in-place operations of
`cells.py` are 1.4 to 2.6 times faster than the code the compiler makes of them (`make bench`), and need none of its
seconds of compilation, so they run as they are unless `set_fusion("always")` says otherwise.

The cells of a mixed-group kernel are never compiled: each works on some channels of a level, and of such parts the
compiler cannot tell whether they overlap (in torch 2.13 the code that it makes then fails).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from trellisnet.core.cells import InPlaceCell
from trellisnet.core.checks import one_of
from trellisnet.core.engine.call import Pass

_mode = ["auto"]  # a list, so that it can be set


def set_fusion(mode: str) -> None:
    """Choose when cells are compiled: "auto" (on a GPU with a working compiler), "always" or "never"."""
    _mode[0] = one_of("mode", mode, ("auto", "always", "never"))


def is_fused(call: Pass, device: torch.device) -> bool:
    """Whether the cells of a call are compiled for tensors on that device."""
    wanted = _mode[0] == "always" or (_mode[0] == "auto" and device.type == "cuda" and _has_triton())
    return wanted and len(call.blocks) == 1


class Functions(NamedTuple):
    """What the engine calls of a cell, on pre-activations or gates (N, G, H)."""

    forward_: Callable[..., None]
    remember_: Callable[..., None]
    expose_: Callable[..., None]
    backward_: Callable[..., None]


@lru_cache
def in_place_functions(cell: InPlaceCell, fused: bool) -> Functions:
    """The cell's functions, compiled or as they are."""

    def forward_(pre: Tensor, *state: Tensor | None) -> None:
        cell.forward_(cell.views(pre), *state)  # type: ignore[arg-type]

    def remember_(gates: Tensor, *state: Tensor | None) -> None:
        cell.remember_(cell.views(gates), *state)  # type: ignore[arg-type]

    def expose_(gates: Tensor, *state: Tensor | None) -> None:
        cell.expose_(cell.views(gates), *state)  # type: ignore[arg-type]

    functions = (forward_, remember_, expose_, cell.backward_)
    return Functions(*(torch.compile(f, dynamic=True) if fused else f for f in functions))


@lru_cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
