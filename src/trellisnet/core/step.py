"""One step of a stream: one position in every layer, without gradients. The path of generation.

What the older taps read is known for all layers before the step begins, so their products are one matrix product;
only the newest tap has to wait for the layer below. A step costs the same whatever the length of the history.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trellisnet.core.cache import remembered
from trellisnet.core.call import Inputs, Outputs, Pass
from trellisnet.core.cells import InPlaceCell
from trellisnet.core.fusion import in_place_functions
from trellisnet.core.plan import Plan, Rows, as_rows, take


def is_possible(call: Pass) -> bool:
    """Whether the call is a single step whose gradients nobody wants."""
    return call.plan.whole and call.plan.wanted == 1 and not torch.is_grad_enabled()


def run(call: Pass, inputs: Inputs) -> Outputs:
    """Compute one step of every layer."""
    assert isinstance(call.cell, InPlaceCell)
    layers, batch, cell = len(call.plan.layers), inputs.batch, call.cell
    activate_, _ = in_place_functions(cell, inputs.sources[0].device)
    hidden = inputs.sources[0].new_empty(layers, batch, call.width)
    memory = torch.empty_like(hidden) if cell.has_memory else None
    before = _older(call, inputs.context_c, len(call.plan.layers[0].taps) - 2) if memory is not None else None
    # one tuple a block, with an entry a layer each
    parts = []
    for b, block in enumerate(call.blocks):
        gates = _known_gates(call, inputs, b)
        newest = [
            (inputs.weights[w].t(), hidden[..., term.channels].unbind(0))
            for w, term in call.terms(b)
            if term.tap == len(call.plan.layers[0].taps) - 1
        ]
        parts.append(
            (
                gates.unbind(0),
                gates.unflatten(-1, (cell.gates, -1)).unbind(0),
                newest,
                (None,) * layers if before is None else before[..., block.channels].unbind(0),
                hidden[..., block.channels].unbind(0),
                (None,) * layers if memory is None else memory[..., block.channels].unbind(0),
            )
        )
    plain_layers = inputs.mask is None and not any(call.alive)
    for i in range(layers):
        for products, gates_i, newest, before_i, hidden_i, memory_i in parts:
            for weight, below in newest if i else ():
                products[i].addmm_(below[i - 1], weight)
            activate_(gates_i[i], before_i[i], hidden_i[i], memory_i[i])
        if not plain_layers:
            _mask(call, inputs, i, hidden[i], None if memory is None else memory[i])
    aux = torch.stack([hidden[level - 1, None, :, call.output] for level in call.aux]) if call.aux else None
    state_c = None if memory is None else _shift(call, inputs.context_c, memory)
    return hidden[-1:, :, call.output].clone(), aux, _shift(call, inputs.context_h, hidden), state_c


def _mask(call: Pass, inputs: Inputs, i: int, hidden: Tensor, memory: Tensor | None) -> None:
    alive = call.alive[i]
    if inputs.mask is not None:
        hidden *= inputs.mask
    if alive is not None:
        hidden[..., alive:] = 0
        if memory is not None:
            memory[..., alive:] = 0


def _older(call: Pass, context: Tensor | None, tap: int) -> Tensor | None:
    """What an older tap of every layer reads, all from the contexts: (layers, B, H); None for zeros."""
    if context is None:
        return None
    rows = take(context, _older_rows(call.plan, call.first_level, tap, context.device))
    if call.first_level:  # the level below the first layer is zero
        rows = torch.cat([torch.zeros_like(rows[:1]), rows])
    return rows


@remembered
def _older_rows(plan: Plan, first_level: int, tap: int, device: torch.device) -> Rows:
    rows, start = [], 0
    for i in range(first_level, len(plan.layers)):
        rows.append(start + tap * plan.layers[i].dilation)
        start += len(plan.levels[i].context)
    return as_rows(rows, device) if rows else slice(0, 0)


def _known_gates(call: Pass, inputs: Inputs, b: int) -> Tensor:
    """The part of a block's pre-activations that does not wait for the layer below: (layers, B, G*H)."""
    layers, batch = len(call.plan.layers), inputs.batch
    channels = call.blocks[b].channels
    gates = inputs.sources[0].new_empty(layers, batch, call.cell.gates * (channels.stop - channels.start))
    products, started = gates.flatten(0, 1), False
    for w, term in call.terms(b):
        older = _older(call, inputs.context_h, term.tap) if term.tap < len(call.plan.layers[0].taps) - 1 else None
        if older is None:
            continue
        matrix = older.flatten(0, 1)[:, term.channels]
        if started:
            products.addmm_(matrix, inputs.weights[w].t())
        else:
            torch.mm(matrix, inputs.weights[w].t(), out=products)
        started = True
    if not started:
        gates.zero_()
    numbers = [layer[b] for layer in call.sources]
    for s in set(numbers) - {None}:
        source = inputs.sources[s]  # type: ignore[index]
        if source.dim() == 3 and inputs.input_weight is not None:
            source = source @ inputs.input_weight.t()
        if numbers.count(s) == layers:
            gates += source
        else:
            gates[[i for i in range(layers) if numbers[i] == s]] += source
    return gates


def _shift(call: Pass, context: Tensor | None, new: Tensor) -> Tensor:
    """The contexts of the next step: every level loses its oldest row and gains the new one."""
    rows = _shifted_rows(call.plan, call.first_level, context is not None, new.device)
    if rows is None:
        return new
    if context is None:
        known = sum(len(level.context) for level in call.plan.levels[1:])
        context = new.new_zeros(known, *new.shape[1:])
    return torch.cat([context, new]).index_select(0, rows)


@remembered
def _shifted_rows(plan: Plan, first_level: int, has_context: bool, device: torch.device) -> Tensor | None:
    """Rows of [contexts; new] that make the next contexts; None where the new rows alone do."""
    spans = [len(level.context) for level in plan.levels]
    if all(span == 1 for span in spans[1:]):
        return None
    start = spans[0] if has_context and first_level == 0 else 0
    total, rows = start + sum(spans[1:]), []
    for i, span in enumerate(spans[1:]):
        rows += [*range(start + 1, start + span), total + i]
        start += span
    return torch.tensor(rows, device=device)
