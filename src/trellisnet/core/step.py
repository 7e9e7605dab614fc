"""One step of a stream: one position in every layer, without gradients. The path of generation.

What the older taps read is known for all layers before the step begins, so their products are one matrix product;
only the newest tap has to wait for the layer below. A step costs the same whatever the length of the history.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trellisnet.core.cache import remembered
from trellisnet.core.call import Inputs, Outputs, Pass
from trellisnet.core.cells import InPlaceCell
from trellisnet.core.fusion import in_place_functions, is_fused
from trellisnet.core.plan import Plan, Rows, as_rows, take


def is_possible(call: Pass) -> bool:
    """Whether the call is a single step whose gradients nobody wants."""
    return call.plan.whole and call.plan.wanted == 1 and not torch.is_grad_enabled()


def run(call: Pass, inputs: Inputs) -> Outputs:
    """Compute one step of every layer."""
    desk = _desk(call, inputs)
    newest = len(call.plan.layers[0].taps) - 1
    if desk.before is not None:
        _lay_out(desk.before, call, inputs.context_c, newest - 1)
    for b, gates in enumerate(desk.gates):
        _fill_known_gates(gates, call, inputs, b)
    weights, activate_ = [weight.t() for weight in inputs.weights], desk.activate_
    masked = inputs.mask is not None or any(call.alive)
    for i, blocks in enumerate(desk.layers):
        for block in blocks:
            for w, below in block.waiting:
                block.products.addmm_(below, weights[w])
            activate_(block.gates, block.before, block.hidden, block.memory)
        if masked:
            _mask(desk, i, inputs.mask, call.alive[i])
    y = desk.hidden[-1:, :, call.output].clone()
    aux = torch.stack([desk.hidden[level - 1, None, :, call.output] for level in call.aux]) if call.aux else None
    state_c = None if desk.memory is None else _shifted(call, inputs.context_c, desk.memory)
    return y, aux, _shifted(call, inputs.context_h, desk.hidden), state_c


def _mask(desk: _Desk, i: int, mask: Tensor | None, alive: int | None) -> None:
    if mask is not None:
        desk.hidden[i] *= mask
    if alive is not None:
        desk.hidden[i, :, alive:] = 0
        if desk.memory is not None:
            desk.memory[i, :, alive:] = 0


class _Block(NamedTuple):
    """Views for one block of one layer."""

    products: Tensor  # (B, G*H)
    gates: Any  # the same as the cell wants them
    waiting: list[tuple[int, Tensor]]  # terms that read the layer below: the number of the weight, what it multiplies
    before: Tensor | None
    hidden: Tensor
    memory: Tensor | None


class _Desk:
    """Buffers for the steps of one shape, and the views of them that every layer works on.

    For a small net, making those views takes as long as the work itself, so they are made once. What a step returns
    is copied from here; a thread has its own.
    """

    def __init__(self, call: Pass, inputs: Inputs) -> None:
        cell, layers, batch = call.cell, len(call.plan.layers), inputs.batch
        assert isinstance(cell, InPlaceCell)
        like, newest = inputs.sources[0], len(call.plan.layers[0].taps) - 1
        self.hidden = like.new_empty(layers, batch, call.width)
        self.memory, self.before = (torch.empty_like(self.hidden) if cell.has_memory else None for _ in range(2))
        self.gates = [
            like.new_empty(layers, batch, cell.gates * (b.channels.stop - b.channels.start)) for b in call.blocks
        ]
        fused = is_fused(like.device)
        self.activate_: Callable[..., None] = in_place_functions(cell, like.device)[0] if fused else cell.forward_
        self.blocks = call.blocks  # kept, so that they can be told by their identity
        self.layers: list[list[_Block]] = []
        for i in range(layers):
            blocks = []
            for b, block in enumerate(call.blocks):
                waiting = [(w, term) for w, term in call.terms(b) if term.tap == newest and i > 0]
                terms = [(w, self.hidden[i - 1, :, term.channels]) for w, term in waiting]
                before, memory = (None if z is None else z[i, :, block.channels] for z in (self.before, self.memory))
                pre = self.gates[b][i].unflatten(-1, (cell.gates, -1))
                gates = pre if fused else cell.views(pre)
                hidden = self.hidden[i, :, block.channels]
                blocks.append(_Block(self.gates[b][i], gates, terms, before, hidden, memory))
            self.layers.append(blocks)


_local = threading.local()


def _desk(call: Pass, inputs: Inputs) -> _Desk:
    desks: dict[object, _Desk] = _local.__dict__.setdefault("desks", {})
    like = inputs.sources[0]
    settings = (is_fused(like.device), torch.is_inference_mode_enabled(), like.device, like.dtype)
    key = (id(call.blocks), call.cell, len(call.plan.layers), len(call.plan.layers[0].taps), inputs.batch, *settings)
    if key not in desks:
        if len(desks) >= 8:
            desks.clear()
        desks[key] = _Desk(call, inputs)
    return desks[key]


def _older(call: Pass, context: Tensor, tap: int) -> Tensor:
    """What an older tap reads, all from the contexts, in the layers from `first_level` on: (layers, B, H)."""
    return take(context, _older_rows(call.plan, call.first_level, tap, context.device))


@remembered
def _older_rows(plan: Plan, first_level: int, tap: int, device: torch.device) -> Rows:
    rows, start = [], 0
    for i in range(first_level, len(plan.layers)):
        rows.append(start + tap * plan.layers[i].dilation)
        start += len(plan.levels[i].context)
    return as_rows(rows, device) if rows else slice(0, 0)


def _lay_out(target: Tensor, call: Pass, context: Tensor | None, tap: int) -> None:
    """Copy what an older tap reads in every layer to (layers, B, H); zeros below `first_level`."""
    known = 0 if context is None else len(target) - call.first_level
    target[: len(target) - known].zero_()
    if context is not None:
        target[call.first_level :].copy_(_older(call, context, tap))


def _fill_known_gates(gates: Tensor, call: Pass, inputs: Inputs, b: int) -> None:
    """The part of a block's pre-activations that does not wait for the layer below: (layers, B, G*H)."""
    layers, newest, started = len(gates), len(call.plan.layers[0].taps) - 1, False
    if inputs.context_h is not None and call.first_level < layers:
        products = gates[call.first_level :].flatten(0, 1)
        for w, term in call.terms(b):
            if term.tap == newest:
                continue
            older = _older(call, inputs.context_h, term.tap).flatten(0, 1)[:, term.channels]
            if started:
                products.addmm_(older, inputs.weights[w].t())
            else:
                torch.mm(older, inputs.weights[w].t(), out=products)
            started = True
    gates[: call.first_level if started else layers].zero_()
    numbers = [layer[b] for layer in call.sources]
    for s in set(numbers) - {None}:
        source = inputs.sources[s]  # type: ignore[index]
        if source.dim() == 3 and inputs.input_weight is not None:
            source = source @ inputs.input_weight.t()
        if numbers.count(s) == layers:
            gates += source
        else:
            gates[[i for i in range(layers) if numbers[i] == s]] += source


def _shifted(call: Pass, context: Tensor | None, new: Tensor) -> Tensor:
    """The contexts of the next step: every level loses its oldest row and gains the new one."""
    rows = _shifted_rows(call.plan, call.first_level, context is not None, new.device)
    if rows is None:
        return new.clone()
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
