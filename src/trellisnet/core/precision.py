"""Which dtypes a net may have, and in which a call computes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def floating_dtype(name: str, value: torch.dtype | None) -> torch.dtype | None:
    """Return `value` if it is a dtype of floating-point numbers, or None."""
    if value is not None and not isinstance(value, torch.dtype):
        raise TypeError(f"{name} must be a torch.dtype of floating-point numbers, got {value!r}")
    if value is not None and not value.is_floating_point:
        raise ValueError(f"{name} must be a torch.dtype of floating-point numbers, got {value}")
    return value


def dtypes_for(x: Tensor, own: torch.dtype) -> tuple[torch.dtype, torch.dtype]:
    """The dtype to compute in and that of the result, for a net whose weights have the dtype `own`.

    Under autocast the result is in autocast's dtype, but for double precision, which autocast leaves alone. A CPU
    computes half precision in single precision: not every CPU that announces bfloat16 products can execute them.
    """
    device, autocast = x.device.type, autocast_dtype(x.device.type)
    if autocast is not None and torch.float64 not in (own, x.dtype) and x.is_floating_point():
        own = autocast
    elif x.dtype != own:
        raise ValueError(f"x must have the dtype of the net, {own}, got {x.dtype}")
    half = own in (torch.bfloat16, torch.float16)
    return torch.float32 if half and device == "cpu" else own, own


def without_autocast(device: str) -> AbstractContextManager[Any]:
    """Switch autocast off, where it is on: the casts are made by hand."""
    return torch.autocast(device, enabled=False) if autocast_dtype(device) is not None else nullcontext()


def autocast_dtype(device: str) -> torch.dtype | None:
    """The dtype that autocast asks for; None where it is off."""
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return None
