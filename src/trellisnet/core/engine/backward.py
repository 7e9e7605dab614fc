"""The walk down through the levels of one call: the gradients of everything, in place.

Only the gradients of two levels exist at a time: one is read while the one below it is written. Shapes: n rows (steps),
B sequences, H hidden channels, G gates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trellisnet.core.call import Call, Inputs
from trellisnet.core.engine.forward import Layers
from trellisnet.core.engine.products import ProductGradients, Products
from trellisnet.core.engine.restore import Restorer
from trellisnet.core.engine.scan import scan_backward_
from trellisnet.core.engine.storage import Kept, Layout, Level, Workspace, add_to, part_of
from trellisnet.core.engine.tiles import Part, Tile


def backward(
    call: Call, inputs: Inputs, grads: tuple[Tensor | None, ...], needed: Inputs, kept: Kept, free: Tensor
) -> Inputs:
    """The gradients of the inputs that are needed, from those of the outputs (y, aux, state h, state c).

    What was kept is overwritten.
    """
    return _Backward(call, inputs, grads, needed, kept, free).run()


class _Backward:
    def __init__(
        self,
        call: Call,
        inputs: Inputs,
        grads: tuple[Tensor | None, ...],
        needed: Inputs,
        kept: Kept,
        free: Tensor,
    ) -> None:
        self.call, self.inputs, self.grads = call, inputs, grads
        self.workspace = workspace = Workspace(call, free, going_up=False)
        products = Products(call, inputs, workspace)
        self.products, self.layers = ProductGradients(products, needed), Layers(call, inputs, products)
        self.restored, self.levels = Restorer(self.layers, kept, workspace), workspace.levels
        # contexts seldom need a gradient
        wanted = needed.context_h or needed.context_c
        contexts = (inputs.context_h, inputs.context_c)
        self.contexts = Level(*(torch.zeros_like(z) if wanted and z is not None else None for z in contexts))
        self.wants_weights = any(weight is not None for weight in self.products.weights)

    def run(self) -> Inputs:
        above: Level | None = self._zeros(self.call.depth)
        for start, stop in reversed(self.call.derive(Layout).segments):
            self.restored.open(start, stop)
            for i in reversed(range(start, stop)):
                assert above is not None
                self._add_outputs(i + 1, above)
                needs_below = i > 0 or (self.contexts.h is not None and not self.call.zero_below)
                below = self._zeros(i) if needs_below else None
                self._run_layer(i, above, below)
                self._keep_context(i + 1, above)
                above = below
        if above is not None:
            self._keep_context(0, above)
        found = self.products
        found.finish()
        flat = (found.x, None, *self.contexts, None, None, found.input_weight, *found.weights, *found.biases)
        return Inputs.of(flat, len(found.weights))

    def _zeros(self, level: int) -> Level:
        for gradient in self.levels[level]:
            if gradient is not None:
                gradient.zero_()
        return self.levels[level]

    def _add_outputs(self, level: int, gradient: Level) -> None:
        """Add what flows into a level from the call's own outputs."""
        call, wanted = self.call, self.call.plan.wanted
        grad_y, grad_aux, *grad_states = self.grads
        assert gradient.h is not None
        if level == call.depth and grad_y is not None:
            gradient.h[-wanted:, :, call.output].add_(grad_y)
        if grad_aux is not None and level in call.aux:
            gradient.h[-wanted:, :, call.output].add_(grad_aux[call.aux.index(level)])
        if (end := call.end_of(level)) is not None:
            for grad_level, grad_state in zip(gradient, grad_states, strict=True):
                if grad_level is not None and grad_state is not None:
                    add_to(grad_level, end[1], grad_state[end[0]])

    def _keep_context(self, level: int, gradient: Level) -> None:
        for grad_context, grad_level in zip(self.contexts, gradient, strict=True):
            if grad_context is not None and grad_level is not None:
                grad_context[self.call.contexts[level]] = grad_level[: self.call.plan.spans[level]]

    def _run_layer(self, i: int, above: Level, below: Level | None) -> None:
        hidden, sweeps = self.restored.hidden(i) if self.wants_weights else None, self.call.path == "sweeps"
        tiles = self.layers.tiles[i]
        for tile in reversed(tiles) if sweeps else tiles:
            self._mask(i, tile, above)
            for b, block in enumerate(self.call.blocks):
                grads = [self.restored.gates[i][b][tile.gates][part.gates] for part in tile.parts]
                if sweeps:
                    self._sweep_cells(i, block.channels, tile, grads, above)
                else:
                    for part, gates in zip(tile.parts, grads, strict=True):
                        self._run_cell(i, block.channels, part, gates, above, below)
                self.products.backward(i, b, tile, hidden, grads, None if below is None else below.h)

    def _mask(self, i: int, tile: Tile, above: Level) -> None:
        """What dropout hides and what is not alive has no gradient."""
        assert above.h is not None
        if self.inputs.mask is not None:
            above.h[tile.new].mul_(self.inputs.mask)
        if (alive := self.call.alive[i]) is not None:
            for gradient in above:
                if gradient is not None:
                    gradient[tile.new, :, alive:] = 0

    def _run_cell(self, i: int, channels: slice, part: Part, gates: Tensor, above: Level, below: Level | None) -> None:
        """Turn the gates of a block into the gradients of its pre-activations; that of the memory goes to below."""
        levels, target, rows = self.restored.levels, None if below is None else below.c, part.memory
        grad_h, grad_c = (part_of(z, part.new, channels) for z in above)
        memory, memory_out = part_of(levels[i].c, rows, channels), part_of(levels[i + 1].c, part.new, channels)
        grad_memory = part_of(target, rows, channels)
        assert grad_h is not None
        self.layers.cell.backward_(self.layers.views(gates), memory, memory_out, grad_h, grad_c, grad_memory)
        if target is not None and grad_memory is not None and isinstance(rows, Tensor):  # a copy, not a view
            target[rows, :, channels] = grad_memory

    def _sweep_cells(self, i: int, channels: slice, tile: Tile, grads: list[Tensor], above: Level) -> None:
        """The same for a sweep, whose memories run along time: so do their gradients, backwards."""
        cell, memory, scratch = self.layers.cell, self.restored.levels[i + 1].c, self.workspace.scratch
        assert above.h is not None
        assert above.c is not None
        assert scratch is not None
        parts = [
            (
                part,
                self.layers.views(gates),
                part_of(above.h, part.new, channels),
                part_of(above.c, part.new, channels),
                scratch[part.gates][..., channels],
            )
            for part, gates in zip(tile.parts, grads, strict=True)
        ]
        for part, views, grad_h, grad_c, free in parts:
            cell.expose_backward_(views, part_of(memory, part.new, channels), grad_h, grad_c, free)
        factors = [cell.factor(views) for _, views, *_ in parts]
        scan_backward_(above.c[..., channels], factors, tile, self.call.plan.layers[i].dilation)
        for part, views, grad_h, grad_c, free in parts:
            cell.affine_backward_(views, part_of(memory, part.memory, channels), grad_c, (grad_h, free))
