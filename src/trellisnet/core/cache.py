"""A cache for what is computed from shapes alone, which steps aside when `torch.compile` traces the call."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def is_traced(x: Tensor) -> bool:
    """Whether a tracer watches, or x is not a tensor with numbers: its shape may have symbols, not to be remembered."""
    return type(x) is not Tensor or torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def remembered(function: Callable[P, R]) -> Callable[P, R]:
    """Remember the last 256 results of a function of hashable arguments."""
    cached = lru_cache(maxsize=256)(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        return cached(*args, **kwargs)  # type: ignore[arg-type]

    return call
