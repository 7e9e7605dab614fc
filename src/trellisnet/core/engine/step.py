"""One step of a stream: one position in every layer, without gradients. The path of generation.

What the older taps read is known for all layers before the step begins, so their products are one matrix product;
only the newest tap has to wait for the layer below. A step costs the same whatever the length of the history.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from trellisnet.core.cache import remembered
from trellisnet.core.cells import InPlaceCell
from trellisnet.core.engine.call import Outputs, Pass, Recipe, weighted
from trellisnet.core.engine.fusion import in_place_functions, is_fused
from trellisnet.core.kernel import Weights
from trellisnet.core.plan import Plan, Rows, as_rows, take
from trellisnet.core.state import TrellisState


def is_possible(call: Pass) -> bool:
    """Whether the call is a single step whose gradients nobody wants."""
    return call.plan.whole and call.plan.wanted == 1 and not torch.is_grad_enabled()


def run(call: Pass, weights: Weights, x: Tensor, state: TrellisState | None, mask: Tensor | None) -> Outputs:
    """Compute one step of every layer, from x (1, B, C)."""
    left, (context_h, context_c) = (None, (None, None)) if state is None else (state.x, state.contexts(call.plan))
    with torch.inference_mode():  # on a desk that only this file sees, so that operations need no bookkeeping
        desk = _desk(call, x)
        desk.lay_out(weights, x, left, context_h, context_c)
        newest = [weight[rows] for weight, rows in zip(weights.hidden, desk.newest, strict=True)]
        masked = mask is not None or any(call.alive)
        for i, blocks in enumerate(desk.layers):
            for (products, below, cell_calls), weight in zip(blocks, newest, strict=True):
                if below is not None:
                    products.addmm_(below, weight)
                for cell_call in cell_calls:
                    cell_call()
            if masked:
                _mask(desk, i, mask, call.alive[i])
    y = desk.output.clone()
    aux = torch.stack([desk.hidden[level - 1, None, :, call.output] for level in call.aux]) if call.aux else None
    state_c = None if desk.memory is None else _shifted(call, context_c, desk.memory)
    return y, aux, _shifted(call, context_h, desk.hidden), state_c


def _mask(desk: _Desk, i: int, mask: Tensor | None, alive: int | None) -> None:
    if mask is not None:
        desk.hidden[i].mul_(mask)
    if alive is not None:
        desk.hidden[i, :, alive:] = 0
        if desk.memory is not None:
            desk.memory[i, :, alive:] = 0


class _Block(NamedTuple):
    """One block of one layer."""

    products: Tensor  # (B, G*H)
    below: Tensor | None  # (B, channels), what the newest tap reads of the layer below; None: zeros, or nothing
    cell_calls: Sequence[Callable[[], object]]  # what turns all that was added up in `products` into the new state


class _Read(NamedTuple):
    """What a source reads of the input: a row a sequence, with a place for each tap and the row of [left; x] it is."""

    matrix: Tensor  # (B, taps * C)
    places: list[tuple[Tensor, int]]
    span: int

    @staticmethod
    def of(recipe: Recipe, span: int, like: Tensor) -> _Read:
        """Room for what a recipe says; `like` is (1, B, C)."""
        batch, channels = like.shape[1:]
        matrix = like.new_empty(batch, len(recipe.taps) * channels)
        starts = [rows.start for rows in recipe.taps if isinstance(rows, slice)]  # of one step, all are slices
        return _Read(matrix, [(matrix[:, j * channels :][:, :channels], row) for j, row in enumerate(starts)], span)

    def product(self, weight: Tensor, bias: Tensor | None, x: Tensor, left: Tensor | None) -> Tensor:
        """What is added to the layers that share the source."""
        if not self.places:
            assert bias is not None
            return bias
        for place, row in self.places:
            if row == self.span:
                place.copy_(x[0])
            elif left is None:
                place.zero_()
            else:
                place.copy_(left[row])
        return weighted(self.matrix, weight, bias)


class _Desk:
    """Buffers for the steps of one call, the views of them that every layer works on, and what reads what.

    For a small net, making those views takes as long as the work itself, so they are made once. What a step returns
    is copied from here; a thread has its own.
    """

    def __init__(self, call: Pass, like: Tensor) -> None:
        cell, layers, batch = call.cell, len(call.plan.layers), like.shape[1]
        assert isinstance(cell, InPlaceCell)
        newest = len(call.plan.layers[0].taps) - 1
        self.call = call  # kept, so that it can be told by its identity
        self.hidden = like.new_empty(layers, batch, call.width)
        self.output = self.hidden[-1:, :, call.output]
        self.memory = torch.empty_like(self.hidden) if cell.has_memory else None
        self.before = torch.zeros_like(self.hidden) if cell.has_memory else None
        self.gates = [like.new_empty(layers, batch, width) for width in call.gate_widths]
        fused = in_place_functions(cell, fused=True).forward_ if is_fused(call, like.device) else None
        self.older = [_older_rows(call, tap, like.device) for tap in range(newest)]
        first = call.first_level
        self.known = [[term for term in block.terms if term.tap < newest] for block in call.blocks]
        # the parts that a state fills in; the memory below the first of its levels stays zero
        self.known_before = None if self.before is None else self.before[first:]
        self.known_gates = [gates[first:].flatten(0, 1) for gates in self.gates]
        waiting = [next((term for term in block.terms if term.tap == newest), None) for block in call.blocks]
        self.newest = [slice(0) if term is None else term.rows for term in waiting]
        self.layers: list[list[_Block]] = []
        for i in range(layers):
            blocks = []
            for b, (block, term) in enumerate(zip(call.blocks, waiting, strict=True)):
                below = None if i == 0 or term is None else self.hidden[i - 1, :, term.channels]
                before, memory = (None if z is None else z[i, :, block.channels] for z in (self.before, self.memory))
                pre = self.gates[b][i].unflatten(-1, (cell.gates, -1))
                state = (before, self.hidden[i, :, block.channels], memory)
                calls = [partial(fused, pre, *state)] if fused else cell.prepared(cell.views(pre), *state)
                blocks.append(_Block(self.gates[b][i], below, calls))
            self.layers.append(blocks)
        # of each block, its sources, each with the layers that add it; None: those to which nothing is added
        self.sources: list[list[tuple[_Read | None, Rows]]] = []
        for b in range(len(call.blocks)):
            users: dict[int | None, list[int]] = {}
            for i, row in enumerate(call.sources):
                users.setdefault(row[b], []).append(i)
            reads = {s: None if s is None else _Read.of(call.recipes[s], call.input_span, like) for s in users}
            self.sources.append([(reads[s], as_rows(rows, like.device)) for s, rows in users.items()])

    def lay_out(
        self, weights: Weights, x: Tensor, left: Tensor | None, context_h: Tensor | None, context_c: Tensor | None
    ) -> None:
        """Bring in all that does not wait for a layer below: the memories, and what input and older taps contribute."""
        if self.known_before is not None:
            self.known_before.zero_() if context_c is None else self.known_before.copy_(take(context_c, self.older[-1]))
        older = [] if context_h is None else [take(context_h, rows).flatten(0, 1) for rows in self.older]
        for b, weight in enumerate(weights.hidden):
            for read, rows in self.sources[b]:
                self.gates[b][rows] = 0 if read is None else read.product(weights.input, weights.biases[b], x, left)
            for term in self.known[b] if older else ():
                self.known_gates[b].addmm_(older[term.tap][:, term.channels], weight[term.rows])


_local = threading.local()


def _desk(call: Pass, x: Tensor) -> _Desk:
    desks: dict[object, _Desk] = _local.__dict__.setdefault("desks", {})
    key = (id(call), is_fused(call, x.device))  # a call is of one batch size, dtype and device
    if key not in desks:
        if len(desks) >= 16:
            del desks[next(iter(desks))]  # the oldest
        desks[key] = _Desk(call, x)
    return desks[key]


def _older_rows(call: Pass, tap: int, device: torch.device) -> Rows:
    """The rows of the contexts that an older tap reads, in the layers from `first_level` on."""
    rows, start = [], 0
    for i in range(call.first_level, len(call.plan.layers)):
        rows.append(start + tap * call.plan.layers[i].dilation)
        start += len(call.plan.levels[i].context)
    return as_rows(rows, device) if rows else slice(0, 0)


def _shifted(call: Pass, context: Tensor | None, new: Tensor) -> Tensor:
    """The contexts of the next step: every level loses its oldest row and gains the new one."""
    rows = _shifted_rows(call.plan, call.first_level, context is not None, new.device)
    if rows is None:
        return new.clone()
    if context is None:
        known = sum(call.plan.spans[1:])
        context = new.new_zeros(known, *new.shape[1:])
    return torch.cat([context, new]).index_select(0, rows)


@remembered
def _shifted_rows(plan: Plan, first_level: int, has_context: bool, device: torch.device) -> Tensor | None:
    """Rows of [contexts; new] that make the next contexts; None where the new rows alone do."""
    spans = plan.spans
    if all(span == 1 for span in spans[1:]):
        return None
    start = spans[0] if has_context and first_level == 0 else 0
    total, rows = start + sum(spans[1:]), []
    for i, span in enumerate(spans[1:]):
        rows += [*range(start + 1, start + span), total + i]
        start += span
    with torch.inference_mode(False):  # remembered, and may serve outside of it
        return torch.tensor(rows, device=device)
