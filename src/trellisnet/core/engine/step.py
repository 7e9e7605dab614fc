"""One step of a stream: one step of every layer, without gradients. The path of generation.

What the older taps read is known for all layers before the step begins, so their products are one matrix product;
only the newest tap waits for the layer below. A step costs the same whatever the length of the sequence before it.

Shapes: L layers, B sequences, H hidden channels, G gates.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trellisnet.core.call import Call, Injections, Inputs, Outputs
from trellisnet.core.cells import InPlaceCell, Views
from trellisnet.core.plan import Rows, as_rows


def run(call: Call, inputs: Inputs) -> Outputs:
    """Compute one step of every layer."""
    assert isinstance(call.cell, InPlaceCell)
    pool = call.derive(_pool)
    with torch.inference_mode():  # only this file sees the buffers, so operations need no bookkeeping
        buffers = pool.pop() if pool else _Buffers(call)  # a thread that comes meanwhile makes its own
        buffers.prepare(inputs)
        newest = [weight[rows] for weight, rows in zip(inputs.weights, buffers.newest, strict=True)]
        masked = inputs.mask is not None or any(call.alive)
        for i, blocks in enumerate(buffers.layers):
            for block, weight in zip(blocks, newest, strict=True):
                if block.below is not None:
                    block.pre.addmm_(block.below, weight)
                call.cell.forward_(block.views, block.memory, block.new_h, block.new_c)
            if masked:
                buffers.mask(i, inputs.mask, call.alive[i])
    hidden, memory = buffers.hidden, buffers.memory
    y = hidden[-1:, :, call.output].clone()
    aux = torch.stack([hidden[level - 1, None, :, call.output] for level in call.aux]) if call.aux else None
    rows = call.derive(_next_rows)
    h = _shift(call, inputs.context_h, hidden, rows)
    c = None if memory is None else _shift(call, inputs.context_c, memory, rows)
    pool.append(buffers)
    return y, aux, h, c


def _pool(_: Call) -> list[_Buffers]:
    return []


class _Block(NamedTuple):
    """One block of one layer."""

    pre: Tensor  # (B, G*H)
    below: Tensor | None  # (B, channels), what the newest tap reads of the layer below; None: zeros, or nothing
    views: Views  # of pre
    memory: Tensor | None  # (B, H), one dilation earlier: of the level below, with sweeps of the same level
    new_h: Tensor  # (B, H)
    new_c: Tensor | None


class _Buffers:
    """Working memory for the steps of one call, and the views of it that every layer works on.

    In a small net, making those views takes as long as the work itself. What a step returns is copied from here.
    """

    def __init__(self, call: Call) -> None:
        cell, depth = call.cell, call.depth
        assert isinstance(cell, InPlaceCell)
        self.call, self.newest_tap = call, len(call.plan.layers[0].taps) - 1
        self.hidden = torch.empty(depth, call.batch, call.width, dtype=call.dtype, device=call.device)
        self.memory = torch.empty_like(self.hidden) if cell.has_memory else None
        self.before = torch.zeros_like(self.hidden) if cell.has_memory else None
        self.pre = [self.hidden.new_empty(depth, call.batch, width) for width in call.gate_widths]
        self.older = [_older_rows(call, tap) for tap in range(self.newest_tap)]
        self.remembered, self.first_remembered = _memory_rows(call)
        # the newest tap has at most one term per block
        waiting = [[term for term in block.terms if term.tap == self.newest_tap] for block in call.blocks]
        self.newest = [terms[0].rows if terms else slice(0) for terms in waiting]
        self.layers = [
            [self._block(cell, i, b, waiting[b][0].channels if waiting[b] else None) for b in range(len(call.blocks))]
            for i in range(depth)
        ]
        users: dict[int | None, list[int]] = {}
        for i, number in enumerate(call.derive(Injections).of_layer):
            users.setdefault(number, []).append(i)
        self.users = {number: as_rows(layers, call.device) for number, layers in users.items()}

    def _block(self, cell: InPlaceCell, i: int, b: int, read: slice | None) -> _Block:
        channels, pre = self.call.blocks[b].channels, self.pre[b][i]
        below = None if i == 0 or read is None else self.hidden[i - 1, :, read]
        before, new_c = (None if z is None else z[i, :, channels] for z in (self.before, self.memory))
        views = cell.views(pre.unflatten(-1, (cell.gates, -1)))
        return _Block(pre, below, views, before, self.hidden[i, :, channels], new_c)

    def prepare(self, inputs: Inputs) -> None:
        """Write all that does not wait for a layer below: memories, biases, and products of input and older taps."""
        first, (context_h, context_c) = self.call.first_level, (inputs.context_h, inputs.context_c)
        if self.before is not None:
            self.before[self.first_remembered :] = 0 if context_c is None else context_c[self.remembered]
        gathered = self.call.derive(Injections).gather(inputs.x)
        for b, (pre, weight, bias) in enumerate(zip(self.pre, inputs.weights, inputs.biases, strict=True)):
            pre.copy_(bias) if bias is not None else pre.zero_()
            for number, layers in self.users.items() if b == 0 else ():
                if number is not None:
                    pre[layers] += gathered[number] @ inputs.input_weight
            for term in self.call.blocks[b].terms:
                if context_h is not None and term.tap < self.newest_tap:
                    read = context_h[self.older[term.tap]][..., term.channels]
                    pre[first:].flatten(0, 1).addmm_(read.flatten(0, 1), weight[term.rows])

    def mask(self, i: int, mask: Tensor | None, alive: int | None) -> None:
        """Apply dropout to the hidden state, and set channels to zero that are not alive in layer i."""
        if mask is not None:
            self.hidden[i].mul_(mask)
        for states in (self.hidden, self.memory):
            if alive is not None and states is not None:
                states[i, :, alive:] = 0


def _older_rows(call: Call, tap: int) -> Rows:
    """The rows of the contexts that an older tap reads, in the layers from `first_level` on."""
    layers = range(call.first_level, call.depth)
    back = len(call.plan.layers[0].taps) - 1 - tap
    rows = [call.contexts[i].stop - back * call.plan.layers[i].dilation for i in layers]
    return as_rows(rows, call.device) if rows else slice(0, 0)


def _memory_rows(call: Call) -> tuple[Rows, int]:
    """The rows of the contexts that the cells' memories are read from, and the first layer that has one."""
    first, above = (0, 1) if call.path == "sweeps" else (call.first_level, 0)
    rows = [call.contexts[i + above].stop - call.plan.layers[i].dilation for i in range(first, call.depth)]
    return as_rows(rows, call.device) if rows else slice(0, 0), first


def _shift(call: Call, context: Tensor | None, new: Tensor, rows: Tensor | None) -> Tensor:
    """The contexts of the next step: every level loses its oldest row and gains the new one."""
    if rows is None:
        return new.clone()
    if context is None:
        context = new.new_zeros(sum(call.plan.spans[1:]), *new.shape[1:])
    return torch.cat([context, new]).index_select(0, rows)


def _next_rows(call: Call) -> Tensor | None:
    """Rows of [contexts; new] that make the next contexts; None where the new rows alone do."""
    spans = call.plan.spans
    if all(span == 1 for span in spans[1:]):
        return None
    start = 0 if call.zero_below else spans[0]
    total, rows = start + sum(spans[1:]), []
    for i, span in enumerate(spans[1:]):
        rows += [*range(start + 1, start + span), total + i]
        start += span
    return torch.tensor(rows, device=call.device)
