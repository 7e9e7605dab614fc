"""The input's contribution to every layer: a linear map of a few steps of x, gathered once for each dilation in use.

A wide input is multiplied here, once for all layers of a dilation. For an input of a few channels (the pixel tasks
have one) that would cost more than it saves: the product is so much larger than the input that reading it is slower
than multiplying again. So narrow inputs go to the engine as they are, with a one beside them for the bias.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from trellisnet.core.cache import remembered
from trellisnet.core.kernel import Kernel, Weights
from trellisnet.core.plan import Plan, Rows, as_rows, take

NARROW = 16  # channels of all taps together, up to which an input is multiplied in every layer

Table = tuple[tuple[int | None, ...], ...]  # [layer][block]: the number of the source


def make_sources(
    plan: Plan, kernel: Kernel, weights: Weights, x: Tensor, left: Tensor | None, span: int, inject_every: int
) -> tuple[list[Tensor], Tensor | None, Table]:
    """What is added to the products of every layer and block, biases included; the weight that is still to be applied
    to a narrow input; and which layer uses what.

    `x` is (T, B, C); `left` the `span` inputs before it, None for zeros. Layers of one dilation share a source, made
    for the lowest of them: the rows of the others are its last.
    """
    if span:
        zeros = F.pad(x, (0, 0, 0, 0, span, 0)) if left is None else None
        x = torch.cat([left, x]) if zeros is None else zeros  # type: ignore[list-item]
    table, makers = _table(plan, kernel.blocks_injected, weights.biases[0] is not None, inject_every)
    sources: list[Tensor] = []
    matrices = list(weights.input.unbind())
    narrow = len(matrices) * x.shape[-1] <= NARROW
    for b, layer in makers:
        bias = weights.biases[b]
        if layer is None:
            assert bias is not None
            sources.append(bias)
            continue
        taps = [take(x, rows) for rows in _input_rows(plan, layer, kernel.input_taps, span, x.device)]
        if narrow:
            taps += [torch.ones_like(taps[0][..., :1])] if bias is not None else []
            sources.append(torch.cat(taps, -1))
        else:
            products = [F.linear(tap, matrix) for tap, matrix in zip(taps[:-1], matrices, strict=False)]
            sources.append(sum(products, F.linear(taps[-1], matrices[-1], bias)))
    if narrow and weights.biases[0] is not None:
        matrices.append(weights.biases[0].unsqueeze(1))
    return sources, torch.cat(matrices, 1) if narrow else None, table


@remembered
def _table(
    plan: Plan, injected: tuple[bool, ...], has_bias: bool, inject_every: int
) -> tuple[Table, list[tuple[int, int | None]]]:
    """Which source each layer and block uses; of each source, its block and the layer it is made for (None: bias)."""
    numbers: dict[tuple[int, int | None], int] = {}
    makers: list[tuple[int, int | None]] = []
    table = []
    for i, layer in enumerate(plan.layers):
        row: list[int | None] = []
        for b, enters in enumerate(injected):
            with_input = enters and i % inject_every == 0
            if not with_input and not has_bias:
                row.append(None)
                continue
            key = (b, layer.dilation if with_input else None)
            if key not in numbers:
                numbers[key] = len(makers)
                makers.append((b, i if with_input else None))
            row.append(numbers[key])
        table.append(tuple(row))
    return tuple(table), makers


@remembered
def _input_rows(plan: Plan, layer: int, taps: int, span: int, device: torch.device) -> list[Rows]:
    """For each tap, the rows of x (with `span` rows before it) that the steps computed by a layer read."""
    steps, dilation = plan.levels[layer + 1].steps, plan.layers[layer].dilation
    shifts = [span - (taps - 1 - j) * dilation for j in range(taps)]
    if isinstance(steps, range):
        return [slice(steps.start + shift, steps.stop + shift) for shift in shifts]
    return [as_rows([step + shift for step in steps], device) for shift in shifts]
