"""The products of a layer, in both directions: what its pre-activations are the sum of, and the gradients of that.

A block adds the bias and, in the first block of an injected layer, the input's part; then a product per term, or the
products of pairs of steps. Shapes: n rows (steps), B sequences, H hidden channels, G gates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trellisnet.core.call import Call, Injections, Inputs
from trellisnet.core.engine.pairs import Pairs
from trellisnet.core.engine.storage import Workspace, add_to
from trellisnet.core.engine.tiles import Part, Tile, Tiling
from trellisnet.core.matmul import addmm_, mm


class Products:
    """The pre-activations of one call."""

    def __init__(self, call: Call, inputs: Inputs, workspace: Workspace) -> None:
        self.call, self.inputs, self.workspace, self.injections = call, inputs, workspace, call.derive(Injections)
        self.gathered = self.injections.gather(inputs.x)  # per injection (n, B, input taps * C)
        self.injected = workspace.injected  # per injection (n, B, G*H), the product with the bias
        for gathered, product in zip(self.gathered, self.injected, strict=False):
            self._multiply(gathered, product)
        paired = any(call.derive(Tiling).paired)
        self.pairs = Pairs(inputs.weights[0], workspace.factors, workspace.shared) if paired else None

    def forward(self, i: int, b: int, tile: Tile, below: Tensor | None, gates: list[Tensor]) -> None:
        """Write the pre-activations of block b in a tile of layer i, from the level below (None: zeros)."""
        for part, pre in zip(tile.parts, gates, strict=True):  # first: products are added to it for free
            self._write_added(i, b, part, pre)
        if below is None:
            return
        if self.pairs is not None and len(gates) == 2:
            self.pairs.forward(below[tile.reads], gates)
            return
        (part,), (pre,) = tile.parts, gates
        for term in self.call.blocks[b].terms:
            read = below[part.taps[term.tap]][..., term.channels]
            addmm_(pre.flatten(0, 1), read.flatten(0, 1), self.inputs.weights[b][term.rows])

    def _write_added(self, i: int, b: int, part: Part, pre: Tensor) -> None:
        number, bias = self.injections.of_layer[i], self.inputs.biases[b]
        if b or number is None:
            pre.copy_(bias) if bias is not None else pre.zero_()
        elif self.injections.shared:
            pre.copy_(self.injected[number][part.injected])
        else:
            self._multiply(self.gathered[number][part.injected], pre)

    def _multiply(self, gathered: Tensor, out: Tensor) -> None:
        bias, matrix, out = self.inputs.biases[0], gathered.flatten(0, 1), out.flatten(0, 1)
        mm(matrix, self.inputs.input_weight, out)
        if bias is not None:
            out.add_(bias)


class ProductGradients:
    """The gradients of all that the products multiply. The weights are tied, so those of all layers add up in place.

    Only what is needed is computed: the input seldom needs a gradient, and frozen weights do not.
    """

    def __init__(self, products: Products, needed: Inputs) -> None:
        self.products, self.call, self.inputs = products, products.call, products.inputs
        inputs = products.inputs
        self.x = _zeros_if(needed.x, inputs.x)
        self.input_weight = _zeros_if(needed.input_weight, inputs.input_weight)
        self.weights = [_zeros_if(*pair) for pair in zip(needed.weights, inputs.weights, strict=True)]
        self.biases = [_zeros_if(*pair) for pair in zip(needed.biases, inputs.biases, strict=True)]
        self.paired = None  # of the kernels of pairs, where both are needed
        if products.pairs is not None and self.weights[0] is not None:
            older, newest = self.weights[0].chunk(2)
            self.paired = (older, torch.zeros_like(older), newest)
        wanted = any(z is not None for z in (self.x, self.input_weight, self.biases[0]))
        self.gathered = [] if self.x is None else [torch.zeros_like(gathered) for gathered in products.gathered]
        # layers that share the product of an injection add up its gradient, and `finish` multiplies it once
        self.injected = [grad.zero_() for grad in products.workspace.grad_injected] if wanted else []

    def backward(
        self, i: int, b: int, tile: Tile, below: Tensor | None, grads: list[Tensor], to: Tensor | None
    ) -> None:
        """Add the gradients of block b in a tile of layer i, from those of its pre-activations, which are used up.

        `below` is the hidden state of the level below, and `to` its gradient, which is added to; None: not needed.
        """
        for part, grad in zip(tile.parts, grads, strict=True):
            self._added(i, b, part, grad)
        if (below is None or self.weights[b] is None) and to is None:
            return
        if self.products.pairs is not None and len(grads) == 2:
            rows = None if below is None or self.paired is None else below[tile.reads]
            self.products.pairs.backward(rows, grads, self.paired, None if to is None else to[tile.reads])
            return
        (part,), grad = tile.parts, grads[0].flatten(0, 1)
        for term in self.call.blocks[b].terms:
            read, weight_grad = part.taps[term.tap], self.weights[b]
            if weight_grad is not None and below is not None:
                addmm_(weight_grad[term.rows], below[read][..., term.channels].flatten(0, 1).t(), grad)
            if to is not None:
                read_grad = mm(grad, self.inputs.weights[b][term.rows].t())
                add_to(to[..., term.channels], read, read_grad.unflatten(0, (-1, self.call.batch)))

    def _added(self, i: int, b: int, part: Part, grad: Tensor) -> None:
        """The gradient of what is added to the products."""
        number, bias = self.products.injections.of_layer[i], self.biases[b]
        if b or number is None:
            if bias is not None:
                bias.add_(grad.sum((0, 1)))
        elif not self.products.injections.shared:
            self._multiplied(number, part.injected, grad)
        elif self.injected:
            self.injected[number][part.injected].add_(grad)

    def _multiplied(self, number: int, rows: slice, grad: Tensor) -> None:
        """The gradients of the factors of an injection, or of some rows of it."""
        flat, bias = grad.flatten(0, 1), self.biases[0]
        if self.input_weight is not None:
            addmm_(self.input_weight, self.products.gathered[number][rows].flatten(0, 1).t(), flat)
        if bias is not None:
            bias.add_(flat.sum(0))
        if self.x is not None:
            self.gathered[number][rows].add_(mm(flat, self.inputs.input_weight.t()).unflatten(0, grad.shape[:2]))

    def finish(self) -> None:
        """Add what is left when all layers are done."""
        for number, grad in enumerate(self.injected):
            self._multiplied(number, slice(None), grad)
        for taps, grad in zip(self.products.injections.rows, self.gathered, strict=False):
            for rows, tap in zip(taps, grad.chunk(len(taps), -1), strict=True):
                assert self.x is not None
                add_to(self.x, rows, tap)
        if self.paired is not None:
            for tap in (self.paired[0], self.paired[2]):
                tap.add_(self.paired[1])


def _zeros_if(needed: object, like: Tensor | None) -> Tensor | None:
    return torch.zeros_like(like) if needed and like is not None else None
