"""The walk down through the levels of one call: the gradients of everything, in place.

The weights are tied, so the gradients of all layers accumulate in one buffer. Only two levels' gradients exist at a
time: one is read while the one below it is written. Shapes: n rows (steps), B sequences, H hidden channels, G gates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trellisnet.core.engine.call import Inputs
from trellisnet.core.engine.forward import Grid
from trellisnet.core.engine.storage import TwoLevels
from trellisnet.core.engine.tiles import Tile, Tiles
from trellisnet.core.plan import Rows, add_, channels_of

Gradient = tuple[Tensor, Tensor | None]  # of a level's hidden state and memory, each (context + n, B, H)


def _zeros(like: Tensor | None) -> Tensor | None:
    return None if like is None else torch.zeros_like(like)


def _zeros_if(wanted: bool, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if wanted else like.new_empty(0)


class BackwardWalk:
    """Gradients of one call, from the gradients of its outputs (y, aux, state h, state c)."""

    def __init__(self, grid: Grid, grads: tuple[Tensor | None, ...], needed: Inputs) -> None:
        self.grid, self.grads, self.call, self.plan = grid, grads, grid.call, grid.call.plan
        inputs = grid.inputs
        # the contexts and the input seldom want a gradient, and frozen weights do not
        self.wants_contexts = bool(needed.context_h or needed.context_c)
        self.wants_input = bool(needed.sources[0])
        self.wants_input_weight = bool(needed.input_weight)
        self.wants_products = self.wants_input or self.wants_input_weight or bool(needed.input_bias)  # of the input
        self.wants_weights = [bool(need) for need in needed.weights]
        self.gradients = Inputs(
            None,
            _zeros(inputs.context_h),
            _zeros(inputs.context_c),
            _zeros_if(self.wants_input_weight, inputs.input_weight),
            _zeros(inputs.input_bias if needed.input_bias else None),
            [_zeros_if(want, weight) for want, weight in zip(self.wants_weights, inputs.weights, strict=True)],
            [_zeros_if(self.wants_input or z.dim() == 1, z) for z in inputs.sources],
        )
        room = grid.walk_room(grid.buffer if grid.reusable else None)
        self.levels = TwoLevels(grid.keep, room)
        products = self.call.shared_products(range(len(self.plan.layers)))
        self.grad_products = {s: room.take(rows, grid.batch, width).zero_() for s, (rows, width) in products.items()}
        # what all taps of a block read in a tile, and then what flows back to them: one product with them side by side
        # takes so much less time than one for each of them that it pays to copy them there
        self.taps = [grid.empty_taps(b) for b in range(len(inputs.weights))]
        grid.prepare_pairs(self.taps[0])  # layers that are computed again on the way use it as well, in turns
        shared = any(grid.paired) and self.wants_weights[0]
        self.grad_shared = _zeros_if(shared, inputs.weights[0].chunk(2)[0])  # of the kernel A + B of pairs

    def run(self) -> Inputs:
        """Walk down and return the gradients in the place of the inputs."""
        depth = len(self.plan.layers)
        above: Gradient | None = self.levels.at(depth)
        for gradient in above or ():
            if gradient is not None:
                gradient.zero_()
        for start, stop in reversed(self.grid.keep.segments):
            self.grid.rebuild(start, stop)
            for i in reversed(range(start, stop)):
                assert above is not None
                if any(self.wants_weights):
                    self.grid.reveal(i)
                self._add_outputs(i + 1, above)
                self._keep_context(i + 1, above)
                wanted = not self.grid.is_zero(i) and (i or self.wants_contexts)
                below = self.levels.at(i) if wanted else None
                self._run_layer(i, above, below)
                self.grid.finish(i)
                above = below
        if above is not None:
            self._keep_context(0, above)
        if len(self.grad_shared):
            for tap in self.gradients.weights[0].chunk(2):
                tap.add_(self.grad_shared)
        for s, grad_product in self.grad_products.items():
            self._run_input(grad_product, self.grid.inputs.sources[s], self.gradients.sources[s])
        return self.gradients

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
                rows = slice(*call.state_starts[level - 1 : level + 1])
                add_(grad_level, call.ends[level - 1], grad_state[rows])

    def _keep_context(self, level: int, gradient: Gradient) -> None:
        if not self.wants_contexts or level < self.call.first_level:
            return
        known, contexts = len(self.plan.levels[level].context), (self.gradients.context_h, self.gradients.context_c)
        for grad_context, grad_level in zip(contexts, gradient, strict=True):
            if grad_context is not None and grad_level is not None:
                grad_context[self.call.context(level)] = grad_level[:known]

    def _run_layer(self, i: int, above: Gradient, below: Gradient | None) -> None:
        layer = self.plan.layers[i]
        # a dense kernel's newest tap reaches all channels of the last rows, and ahead of the older taps
        dense = len(self.call.blocks) == 1 and len(self.call.blocks[0].terms) == len(layer.taps)
        overwrites = dense and all(isinstance(rows, slice) for rows in layer.taps)
        if below is not None:
            below[0][: -layer.rows if overwrites else None].zero_()
            if below[1] is not None:
                for rest in self._unwritten(layer.memory):
                    below[1][rest].zero_()
        for tiles in self.grid.tiles(i):
            for tile in tiles:
                self._mask(i, tile, above)
            for b in range(len(self.call.blocks)):
                grad_gates = [self._run_block(i, b, tile, above, below) for tile in tiles]
                for tile, grad in zip(tiles, grad_gates, strict=True):
                    self._run_source(i, b, tile, grad)
                if len(tiles) == 2:
                    self._run_pairs(i, tiles, grad_gates, below)
                elif not self.grid.is_zero(i):
                    self._run_terms(i, b, tiles[0], grad_gates[0].flatten(0, 1), below, overwrites)

    def _mask(self, i: int, tile: Tile, above: Gradient) -> None:
        """What dropout hides and what is not alive has no gradient."""
        grad_h, mask, alive = tile.of(above[0]), self.grid.inputs.mask, self.call.alive[i]
        if mask is not None:
            grad_h.mul_(mask)
        if alive is not None:
            grad_h[..., alive:] = 0
            if above[1] is not None:
                tile.of(above[1])[..., alive:] = 0

    @staticmethod
    def _unwritten(rows: Rows) -> list[slice]:
        """What of a level is not written when those rows are."""
        return [slice(rows.start), slice(rows.stop, None)] if isinstance(rows, slice) else [slice(None)]

    def _run_block(self, i: int, b: int, tile: Tile, above: Gradient, below: Gradient | None) -> Tensor:
        """The gradients of a block's pre-activations; that of the memory goes to the level below."""
        grid, layer, block = self.grid, self.plan.layers[i], self.call.blocks[b]
        gates, memory_out = tile.of_gates(grid.gates[i][b]), channels_of(grid.new(grid.memory, i, tile), block.channels)
        gates = gates if grid.owns_gates(i) else gates.clone()
        if memory_out is not None and not grid.owns_memory(i + 1):
            memory_out = memory_out.clone()
        grad_h, grad_c = (None if z is None else channels_of(tile.of(z), block.channels) for z in above)
        assert grad_h is not None
        before, target, target_rows = None, None if below is None else below[1], tile.part(layer.memory)
        if target is not None:
            target = channels_of(target, block.channels)
            before = target[target_rows] if isinstance(target_rows, slice) else torch.empty_like(grad_h)
        grid.functions.backward_(
            grid.by_gate(gates),
            grid.memory_before(i, b, tile),
            memory_out,
            grad_h,
            grad_c,
            before,
        )
        if target is not None and before is not None and not isinstance(target_rows, slice):
            target.index_copy_(0, target_rows, before)
        return gates  # their gradients now

    def _run_source(self, i: int, b: int, tile: Tile, grad_gates: Tensor) -> None:
        """The gradient of what was added to the products of a block."""
        s = self.call.sources[i][b]
        if s is None:
            return
        source, grad_source = self.grid.inputs.sources[s], self.gradients.sources[s]
        if not self.call.recipes[s].taps:
            grad_source += grad_gates.sum((0, 1))
        elif self.call.narrow:
            self._run_input(grad_gates, tile.of(source), tile.of(grad_source))
        elif self.wants_products:
            tile.of(self.grad_products[s]).add_(grad_gates)

    def _run_input(self, grad_product: Tensor, source: Tensor, grad_source: Tensor) -> None:
        """The gradients of what a source from the input is multiplied with, and its own."""
        if not self.wants_products:
            return
        flat = grad_product.flatten(0, 1)
        if self.wants_input_weight:
            self.gradients.input_weight.addmm_(source.flatten(0, 1).t(), flat)
        if self.gradients.input_bias is not None:
            self.gradients.input_bias.add_(flat.sum(0))
        if self.wants_input:
            grad_source.add_((flat @ self.grid.inputs.input_weight.t()).view_as(grad_source))

    def _run_pairs(self, i: int, tiles: Tiles, grad_gates: list[Tensor], below: Gradient | None) -> None:
        """The gradients of the kernel, and of what a couple of tiles reads, from those of its gates."""
        grid, grad_kernels, rows = self.grid, None, None
        if self.wants_weights[0]:
            older, newest = self.gradients.weights[0].chunk(2)
            grad_kernels, rows = (older, self.grad_shared, newest), grid.rows_of_pairs(i, tiles, grid.hidden[i])
        grad_rows = None if below is None else grid.rows_of_pairs(i, tiles, below[0])
        grid.pairs.backward(rows, grad_gates, grad_kernels, grad_rows)

    def _run_terms(
        self, i: int, b: int, tile: Tile, grad_gates: Tensor, below: Gradient | None, overwrites: bool
    ) -> None:
        """The gradients of a block's weights, and of what its taps read. `grad_gates` is (n*B, G*H)."""
        layer, terms, taps = self.plan.layers[i], self.call.blocks[b].terms, self.taps[b][: len(grad_gates)]
        if self.wants_weights[b]:
            for term in terms:
                taps[:, term.rows] = self.grid.tap(i, term, tile)
            self.gradients.weights[b].addmm_(taps.t(), grad_gates)
        if below is None:
            return
        grad_taps = torch.mm(grad_gates, self.grid.inputs.weights[b].t(), out=taps)
        for term in reversed(terms):
            target, rows = channels_of(below[0], term.channels), tile.part(layer.taps[term.tap])
            grad_tap = grad_taps[:, term.rows].unflatten(0, (tile.rows, -1))
            if overwrites and term.tap == len(layer.taps) - 1:  # comes first
                target[rows] = grad_tap
            else:
                add_(target, rows, grad_tap)
