"""The walk down through the levels of one call: the gradients of everything, in place.

The weights are tied, so the gradients of all layers accumulate in one buffer a weight. Only two levels' gradients exist
at a time: one is read while the one below it is written. Shapes: n rows (steps), B sequences, H hidden channels.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

import torch
from torch import Tensor

from trellisnet.core.call import Inputs
from trellisnet.core.forward import Grid
from trellisnet.core.plan import Rows, add_, part

Gradient = tuple[Tensor, Tensor | None]  # of a level's hidden state and memory, each (context + n, B, H)


class BackwardWalk:
    """Gradients of one call, from the gradients of its outputs (y, aux, state h, state c)."""

    def __init__(self, grid: Grid, grads: tuple[Tensor | None, ...], needed: Inputs) -> None:
        self.grid, self.grads, self.call, self.plan = grid, grads, grid.call, grid.call.plan
        inputs, width = grid.inputs, grid.call.width
        # the contexts, and the narrow sources that stem from the input, seldom want a gradient
        self.wants_contexts = bool(needed.context_h or needed.context_c)
        self.wants_sources = inputs.input_weight is None or any(needed.sources)
        zeros = [None if tensor is None else torch.zeros_like(tensor) for tensor in inputs.flat()[1:]]
        self.gradients = Inputs.of((None, *zeros), len(inputs.weights))
        rows = [len(level.context) + len(level.steps) for level in self.plan.levels]
        memories = range(2 if self.call.cell.has_memory else 1)
        self.levels = [[grid.empty(max(rows[parity::2]), width) for _ in memories] for parity in range(2)]
        self.grad_gates = grid.empty(grid.tile_rows, max(grid.gate_widths))

    def run(self) -> Inputs:
        """Walk down and return the gradients in the place of the inputs."""
        depth = len(self.plan.layers)
        above: Gradient | None = self._level(depth)
        for gradient in above or ():
            if gradient is not None:
                gradient.zero_()
        starts = [0, *self.grid.kept_levels]
        for start, stop in reversed(list(pairwise([*starts, depth]))):
            self.grid.rebuild(start, stop)
            for i in reversed(range(start, stop)):
                assert above is not None
                self._add_outputs(i + 1, above)
                self._keep_context(i + 1, above)
                wanted = self.grid.hidden[i] is not None and (i or self.wants_contexts)
                below = self._level(i) if wanted else None
                self._run_layer(i, above, below)
                above = below
            self.grid.drop(start, stop)
        if above is not None:
            self._keep_context(0, above)
        return self.gradients

    def _level(self, level: int) -> Gradient:
        rows = len(self.plan.levels[level].context) + len(self.plan.levels[level].steps)
        h, *c = (buffer[:rows] for buffer in self.levels[level % 2])
        return h, c[0] if c else None

    def _add_outputs(self, level: int, gradient: Gradient) -> None:
        """Add what flows into a level from the call's own outputs."""
        call, wanted = self.call, self.plan.wanted
        grad_y, grad_aux, *grad_states = self.grads
        if level == len(self.plan.layers) and grad_y is not None:
            gradient[0][-wanted:, :, call.output].add_(grad_y)
        if grad_aux is not None and level in call.aux:
            gradient[0][-wanted:, :, call.output].add_(grad_aux[call.aux.index(level)])
        for grad_level, grad_state in zip(gradient, grad_states, strict=True):
            if grad_level is not None and grad_state is not None:
                ends = [r.stop - r.start if isinstance(r, slice) else len(r) for r in call.ends]
                starts = [0, *accumulate(ends)]
                add_(grad_level, call.ends[level - 1], grad_state[starts[level - 1] : starts[level]])

    def _keep_context(self, level: int, gradient: Gradient) -> None:
        if not self.wants_contexts or level < self.call.first_level:
            return
        known, contexts = len(self.plan.levels[level].context), (self.gradients.context_h, self.gradients.context_c)
        for grad_context, grad_level in zip(contexts, gradient, strict=True):
            if grad_context is not None and grad_level is not None:
                grad_context[self.call.context(level)] = grad_level[:known]

    def _run_layer(self, i: int, above: Gradient, below: Gradient | None) -> None:
        layer, alive, mask = self.plan.layers[i], self.call.alive[i], self.grid.inputs.mask
        # a dense kernel's newest tap reaches all channels of the last rows, and ahead of the older taps
        dense = len(self.call.blocks) == 1 and len(self.call.blocks[0].terms) == len(layer.taps)
        overwrites = dense and all(isinstance(rows, slice) for rows in layer.taps)
        if below is not None:
            below[0][: -layer.rows if overwrites else None].zero_()
            if below[1] is not None:
                for rest in self._unwritten(layer.memory):
                    below[1][rest].zero_()
        for tile in self.grid.tiles(i):
            grad_h, grad_c = (None if z is None else z[-layer.rows :][slice(*tile)] for z in above)
            assert grad_h is not None
            if mask is not None:
                grad_h *= mask
            if alive is not None:
                grad_h[..., alive:] = 0
                if grad_c is not None:
                    grad_c[..., alive:] = 0
            for b in range(len(self.call.blocks)):
                grad_gates = self._run_block(i, b, tile, grad_h, grad_c, below)
                self._run_source(i, b, tile, grad_gates)
                if self.grid.hidden[i] is not None:
                    self._run_terms(i, b, tile, grad_gates.flatten(0, 1), below, overwrites)

    @staticmethod
    def _unwritten(rows: Rows) -> list[slice]:
        """What of a level is not written when those rows are."""
        return [slice(rows.start), slice(rows.stop, None)] if isinstance(rows, slice) else [slice(None)]

    def _run_block(
        self, i: int, b: int, tile: tuple[int, int], grad_h: Tensor, grad_c: Tensor | None, below: Gradient | None
    ) -> Tensor:
        """The gradients of a block's pre-activations; that of the memory goes to the level below."""
        grid, layer, channels, cell = self.grid, self.plan.layers[i], self.call.blocks[b].channels, self.call.cell
        rows, width = tile[1] - tile[0], grid.gate_widths[b]
        gates, state = grid.gates[i][b][slice(*tile)], grid.memory[i + 1]
        memory = None if state is None else state[-layer.rows :][slice(*tile)]
        before, target, target_rows = None, None if below is None else below[1], part(layer.memory, *tile)
        if target is not None:
            target = target[..., channels]
            before = target[target_rows] if isinstance(target_rows, slice) else torch.empty_like(grad_h[..., channels])
        size = rows * grid.batch * width
        grad_gates = self.grad_gates.view(-1)[:size].view(rows, grid.batch, width)
        grid.functions.backward_(
            gates.unflatten(-1, (cell.gates, -1)),
            grid.memory_before(i, b, tile),
            None if memory is None else memory[..., channels],
            grad_h[..., channels],
            None if grad_c is None else grad_c[..., channels],
            grad_gates.unflatten(-1, (cell.gates, -1)),
            before,
        )
        if target is not None and before is not None and not isinstance(target_rows, slice):
            target.index_copy_(0, target_rows, before)
        return grad_gates

    def _run_source(self, i: int, b: int, tile: tuple[int, int], grad_gates: Tensor) -> None:
        """The gradient of what was added to the products of a block."""
        s, rows = self.call.sources[i][b], self.plan.layers[i].rows
        if s is None:
            return
        grad_source, weight = self.gradients.sources[s], self.grid.inputs.input_weight
        if grad_source.dim() == 1:
            grad_source += grad_gates.sum((0, 1))
            return
        grad_source = grad_source[-rows:][slice(*tile)]
        if weight is None:
            grad_source += grad_gates
            return
        source, flat = self.grid.source(i, b, tile), grad_gates.flatten(0, 1)
        assert source is not None
        assert self.gradients.input_weight is not None
        self.gradients.input_weight.addmm_(flat.t(), source.flatten(0, 1))
        if self.wants_sources:
            grad_source.flatten(0, 1).addmm_(flat, weight)

    def _run_terms(
        self, i: int, b: int, tile: tuple[int, int], grad_gates: Tensor, below: Gradient | None, overwrites: bool
    ) -> None:
        """The gradients of a block's weights, and of what its taps read. `grad_gates` is (n*B, G*H)."""
        taps = self.plan.layers[i].taps
        for w, term in reversed(self.call.terms(b)):  # the newest tap first: it may overwrite
            weight, rows = self.grid.inputs.weights[w], part(taps[term.tap], *tile)
            self.gradients.weights[w].addmm_(grad_gates.t(), self.grid.tap(i, term, tile))
            if below is None:
                continue
            if not isinstance(rows, slice):
                grad_tap = (grad_gates @ weight).unflatten(0, (tile[1] - tile[0], -1))
                add_(below[0][..., term.channels], rows, grad_tap)
                continue
            target = below[0][rows].flatten(0, 1)[:, term.channels]
            if overwrites and term.tap == len(taps) - 1:
                torch.mm(grad_gates, weight, out=target)
            else:
                target.addmm_(grad_gates, weight)
