"""The input's contribution to every layer: a linear map of a few steps of x, gathered once for each dilation in use.

A wide input is multiplied here, once for all layers of a dilation. For an input of a few channels (the pixel tasks
have one) that would cost more than it saves: the product is so much larger than the input that reading it is slower
than multiplying again. So narrow inputs go to the engine as they are, with a one beside them for the bias.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from trellisnet.core.kernel import Kernel, Weights
from trellisnet.core.plan import Plan, Rows, as_rows, take

NARROW = 16  # channels of all taps together, up to which an input is multiplied in every layer

Table = tuple[tuple[int | None, ...], ...]  # [layer][block]: the number of the source


class Recipe(NamedTuple):
    """How a source is made: for which block, and from which rows of x for each tap (none: only the bias)."""

    block: int
    taps: tuple[Rows, ...]


def plan_sources(
    plan: Plan, kernel: Kernel, span: int, inject_every: int, device: torch.device
) -> tuple[Table, tuple[Recipe, ...]]:
    """Which source each layer and block adds to its products, and how the sources are made.

    Layers of one dilation share a source, made for the lowest of them: the rows of the others are its last. `span` rows
    stand before the first step of x.
    """
    numbers: dict[tuple[int, int | None], int] = {}
    recipes: list[Recipe] = []
    table = []
    for i, layer in enumerate(plan.layers):
        row: list[int | None] = []
        for b, block in enumerate(kernel.blocks):
            with_input = block.injected and i % inject_every == 0
            if not with_input and not kernel.bias_names:
                row.append(None)
                continue
            key = (b, layer.dilation if with_input else None)
            if key not in numbers:
                numbers[key] = len(recipes)
                taps = _input_rows(plan, i, kernel.input_taps, span, device) if with_input else ()
                recipes.append(Recipe(b, taps))
            row.append(numbers[key])
        table.append(tuple(row))
    return tuple(table), tuple(recipes)


def _input_rows(plan: Plan, layer: int, taps: int, span: int, device: torch.device) -> tuple[Rows, ...]:
    """For each tap, the rows of x (with `span` rows before it) that the steps computed by a layer read."""
    steps, dilation = plan.levels[layer + 1].steps, plan.layers[layer].dilation
    shifts = [span - (taps - 1 - j) * dilation for j in range(taps)]
    if isinstance(steps, range):
        return tuple(slice(steps.start + shift, steps.stop + shift) for shift in shifts)
    return tuple(as_rows([step + shift for step in steps], device) for shift in shifts)


def make_sources(
    recipes: tuple[Recipe, ...], weights: Weights, x: Tensor, left: Tensor | None, span: int
) -> tuple[list[Tensor], Tensor | None]:
    """The sources, and the weight that is still to be applied to narrow ones.

    `x` is (T, B, C); `left` the `span` inputs before it, None for zeros.
    """
    if span:
        x = F.pad(x, (0, 0, 0, 0, span, 0)) if left is None else torch.cat([left, x])
    weight, narrow = weights.input, len(weights.input) <= NARROW
    sources: list[Tensor] = []
    for block, rows in recipes:
        bias = weights.biases[block]
        if not rows:
            assert bias is not None
            sources.append(bias)
            continue
        taps = [take(x, each) for each in rows]
        if narrow and bias is not None:
            taps.append(torch.ones_like(taps[0][..., :1]))
        read = torch.cat(taps, -1)
        if not narrow:
            flat = read.flatten(0, 1)
            products = flat @ weight if bias is None else torch.addmm(bias, flat, weight)
            read = products.view(*read.shape[:2], -1)
        sources.append(read)
    if narrow and (bias := weights.biases[0]) is not None:
        weight = torch.cat([weight, bias.unsqueeze(0)])
    return sources, weight if narrow else None
