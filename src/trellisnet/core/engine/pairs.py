"""The products of two neighbouring steps as three instead of four.

With two taps, a step reads rows x0 and x1 of the level below, and the next step rows x1 and x2. With the kernels A of
the older tap and B of the newest, their products are

    x0 A + x1 B = (x0 - x1) A + x1 (A + B)
    x1 A + x2 B = (x2 - x1) B + x1 (A + B)

where the last product is the same: a quarter less work, on the way down as well (Winograd's F(2, 2), in *Arithmetic
complexity of computations*, 1980). The layers share one sum A + B, as they share their weights. No step sees what it
would not see otherwise, and as all factors are one, rounding errors hardly grow, measured by the largest of the rows.

Shapes: n steps, n1 of them the first of a pair and n2 the second (one less if n is odd), B sequences, H hidden
channels, G gates.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trellisnet.core.engine.call import Inputs, Pass
from trellisnet.core.engine.fusion import is_fused

# Layers of fewer hidden states take as long in pairs, and so do narrower ones: what the products save, more and smaller
# operations cost. Measured with LSTM cells, widths from 16 to 700.
PAIRED = 1 << 17
PAIRED_WIDTH = 128


def paired_layers(call: Pass, inputs: Inputs) -> tuple[bool, ...]:
    """Of each layer, whether its products are made for pairs of steps.

    The kernel must be dense and have two taps. Only on a CPU, which never computes in half precision here: half has no
    digits to spare for the differences, and on a GPU we could not see whether it pays. Compiled cells cannot do with
    every second step of a level.
    """
    device, blocks = inputs.weights[0].device, call.blocks
    possible = device.type == "cpu" and not is_fused(call, device) and len(blocks) == 1 and len(blocks[0].terms) == 2
    least, wide = PAIRED / (inputs.batch * call.width), call.width >= PAIRED_WIDTH
    return tuple(
        possible and wide and i > 0 and layer.rows >= least and layer.reads_neighbours
        for i, layer in enumerate(call.plan.layers)
    )


class Pairs:
    """A kernel (2*H, G*H) for pairs of steps. `scratch` has room for 2*H numbers a step and sequence of a tile."""

    def __init__(self, weight: Tensor, scratch: Tensor) -> None:
        older, newest = weight.chunk(2)
        self.kernels = (older, older + newest, newest)
        self.scratch = scratch.view(-1)

    def begin(self, rows: Tensor, first: Tensor) -> list[Tensor]:
        """Write the product that both steps share to the gates of the first, (n1, B, G*H), from rows (n+1, B, H).

        Returns what the others are made of.
        """
        factors = self._read(rows)
        torch.mm(factors[1].flatten(0, 1), self.kernels[1], out=first.flatten(0, 1))
        return factors

    def finish(self, factors: list[Tensor], first: Tensor, second: Tensor) -> None:
        """Add the other products to the gates (n1, B, G*H) and (n2, B, G*H)."""
        first.flatten(0, 1).addmm_(factors[0].flatten(0, 1), self.kernels[0])
        second.flatten(0, 1).addmm_(factors[2].flatten(0, 1), self.kernels[2])

    def backward(
        self,
        rows: Tensor | None,
        grad_gates: Sequence[Tensor],
        grad_kernels: Sequence[Tensor] | None,
        grad_rows: Tensor | None,
    ) -> None:
        """Give the gradients of the three kernels and of the rows, or of what is wanted of them.

        The kernels' are added to; without them no rows are needed. The rows' are written, but for the first, which is
        added to: it may be the last row of another couple of tiles. Those of the gates are used up.
        """
        first, second = grad_gates
        factors = self._places(len(first), len(second), first.shape[1]) if rows is None else self._read(rows)

        def go_back(k: int, grad: Tensor) -> None:
            """Give the gradient of kernel k, and put that of its factor in the place of the factor."""
            factor, products = factors[k].flatten(0, 1), grad.flatten(0, 1)
            if grad_kernels is not None:
                grad_kernels[k].addmm_(factor.t(), products)
            if grad_rows is not None:
                torch.mm(products, self.kernels[k].t(), out=factor)

        go_back(0, first)
        go_back(2, second)
        first[: len(second)].add_(second)  # both steps share a product
        go_back(1, first)
        if grad_rows is not None:
            older, shared, newest = factors
            middle = torch.sub(shared, older, out=grad_rows[1::2])
            middle[: len(newest)].sub_(newest)
            grad_rows[2::2] = newest
            grad_rows[:-1:2].add_(older)

    def _read(self, rows: Tensor) -> list[Tensor]:
        """The factors x0 - x1, x1 and x2 - x1 of rows (n+1, B, H)."""
        older, shared, newest = rows[:-1:2], rows[1::2], rows[2::2]
        factors = self._places(len(shared), len(newest), rows.shape[1])
        torch.sub(older, shared, out=factors[0])
        factors[1].copy_(shared)
        torch.sub(newest, shared[: len(newest)], out=factors[2])
        return factors

    def _places(self, first: int, second: int, batch: int) -> list[Tensor]:
        """Scratch memory for the factors: (n1, B, H), (n1, B, H) and (n2, B, H)."""
        width = len(self.kernels[0])
        sizes = [n * batch * width for n in (first, first, second)]
        return [piece.view(-1, batch, width) for piece in self.scratch[: sum(sizes)].split(sizes)]
