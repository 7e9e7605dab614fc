"""The input's contribution to every layer: a linear map of a few steps of x, gathered once for each dilation in use.

The engine multiplies what is gathered here, a wide input once for all layers of a dilation. For an input of a few
channels (the pixel tasks have one) that would cost more than it saves: the product is so much larger than the input
that reading it is slower than multiplying again. So a narrow input is multiplied in every layer, with a one beside it
for the bias.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from trellisnet.core.engine.call import Inputs, Pass, Recipe
from trellisnet.core.kernel import Kernel, Weights
from trellisnet.core.plan import Plan, Rows, as_rows, take
from trellisnet.core.state import TrellisState

NARROW = 16  # channels of all taps together, up to which an input is multiplied in every layer

Table = tuple[tuple[int | None, ...], ...]  # [layer][block]: the number of the source


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


def is_narrow(input_channels: int) -> bool:
    """Whether an input of so many channels, all taps together, is multiplied in every layer."""
    return input_channels <= NARROW


def make_inputs(call: Pass, weights: Weights, x: Tensor, state: TrellisState | None, mask: Tensor | None) -> Inputs:
    """All tensors of a call on x (T, B, C): the sources are gathered here."""
    context_h, context_c = (None, None) if state is None else state.contexts(call.plan)
    if span := call.input_span:
        left = None if state is None else state.x
        x = F.pad(x, (0, 0, 0, 0, span, 0)) if left is None else torch.cat([left, x])
    weight, bias = weights.input, weights.biases[0]
    sources: list[Tensor] = []
    for block, rows in call.recipes:
        if not rows:
            sources.append(weights.biases[block])  # type: ignore[arg-type]
            continue
        taps = [take(x, each) for each in rows]
        if call.narrow and bias is not None:
            taps.append(torch.ones_like(taps[0][..., :1]))
        sources.append(torch.cat(taps, -1))
    if call.narrow and bias is not None:
        weight, bias = torch.cat([weight, bias.unsqueeze(0)]), None
    return Inputs(mask, context_h, context_c, weight, bias, weights.hidden, sources)
