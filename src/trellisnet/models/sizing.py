"""The width that gives a model a number of parameters, for comparisons of bodies of equal size."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import torch
from torch import nn

from trellisnet.core.checks import positive

TOLERANCE = 0.03  # relative
SPAN = 64  # widths that are tried after each power of two: some bodies accept only multiples of a number
LARGEST = 2**20


def width_for(build: Callable[[int], nn.Module], parameters: float) -> int:
    """The width with which a model has about a number of parameters, within 3 %.

    Models are built on the device `meta`, without memory and without random numbers. Widths that the model does not
    accept are skipped.

    Args:
        build: builds the model of a width. More width must mean more parameters; a width that raises a ValueError is
            skipped.
        parameters: the budget of the whole model; tied parameters count once.

    Raises:
        ValueError: no width meets the budget (the message names the nearest sizes), or no width can be built (the
            message is that of the largest).

    >>> from trellisnet import TrellisLM
    >>> width_for(lambda width: TrellisLM(10_000, embedding_size=64, hidden_size=width, num_layers=8), 1e6)
    179
    """
    budget = positive("parameters", parameters)
    search = _Search(build, budget)
    bound = search.first_bound()
    if not search.sizes:
        raise ValueError(str(search.error)) from None
    below = 0
    while bound - below > 1:  # no width from `bound` up to the one found above the budget can be built
        middle = (below + bound) // 2
        width = search.first(middle, bound)
        if width is None or search.sizes[width] > budget:
            bound = middle
        else:
            below = width
    nearest = sorted(search.sizes, key=lambda width: abs(search.sizes[width] - budget))
    if abs(search.sizes[nearest[0]] - budget) <= TOLERANCE * budget:
        return nearest[0]
    if search.sizes[smallest := min(search.sizes)] > budget:
        raise ValueError(
            f"parameters = {budget:,.0f} cannot be met: the smallest possible size is {search.described(smallest)}"
        )
    sizes = " and ".join(search.described(width) for width in sorted(nearest[:2]))
    raise ValueError(f"parameters = {budget:,.0f} cannot be met within {TOLERANCE:.0%}: the nearest sizes are {sizes}")


class _Search:
    """The numbers of parameters of the widths tried so far, and the error of the last width that cannot be built."""

    def __init__(self, build: Callable[[int], nn.Module], budget: float) -> None:
        self.build, self.budget = build, budget
        self.sizes: dict[int, int] = {}
        self.error: ValueError | None = None

    def first(self, start: int, stop: int) -> int | None:
        """The first width of a range that can be built."""
        for width in range(start, stop):
            try:
                with torch.device("meta"):
                    model = self.build(width)
            except ValueError as error:
                self.error = error
                continue
            self.sizes[width] = sum(parameter.numel() for parameter in model.parameters())
            return width
        return None

    def first_bound(self) -> int:
        """A width above the budget, found by doubling; `LARGEST` if there is none."""
        width = 1
        while width < LARGEST:
            found = self.first(width, min(2 * width, width + SPAN))
            if found is not None and self.sizes[found] > self.budget:
                return found
            width *= 2
        return LARGEST

    def described(self, width: int) -> str:
        return f"{self.sizes[width]:,} (hidden_size={width})"


def physical_memory() -> float:
    """The bytes of memory of this machine; infinity if the system does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf
