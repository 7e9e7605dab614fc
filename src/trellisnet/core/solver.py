"""Depth as the number of iterations of a solver: layers until nothing changes any more.

With one dilation, and the input in every layer, all layers are the same map. If its iteration settles, its limit is a
fixed point that all ways through the grid share.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Levels = tuple[Any, Any]  # h and c at all steps: (T, B, H) each; c is None if the cell has no memory


def solve(layer: Callable[[Levels], Levels], start: Tensor, tolerance: float, most: int) -> tuple[Levels, int]:
    """Apply a layer until no hidden state changes by more than `tolerance`, at most `most` times. No gradients.

    Args:
        layer: computes a level from the one below it.
        start: the level to begin with, as hidden state and as memory.
        tolerance: largest change of a hidden state at the end.
        most: the most layers.

    Returns:
        The last level, and the number of layers; the start, if `most` is 0.
    """
    levels, count, change = (start, start), 0, math.inf
    with torch.no_grad():
        while not change <= tolerance and count < most:  # also while it is not a number
            before, levels = levels, layer(levels)
            change, count = float((levels[0] - before[0]).abs().max()), count + 1
    return levels, count
