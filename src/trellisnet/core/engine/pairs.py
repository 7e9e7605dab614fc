"""The products of two neighbouring steps as three instead of four.

With two taps, a step reads rows x0 and x1 of the level below, and the next step rows x1 and x2. With the kernels A of
the older tap and B of the newest, their products are

    x0 A + x1 B = (x0 - x1) A + x1 (A + B)
    x1 A + x2 B = (x2 - x1) B + x1 (A + B)

where the last product is the same: a quarter less work, in the backward pass too (Winograd's F(2, 2), in *Arithmetic
complexity of computations*, 1980). All layers share one sum A + B, as they share their weights. No step sees what it
would not see otherwise, and as all factors are one, rounding errors hardly grow, measured by the largest of the rows.

Shapes: n steps, n1 of them the first of a pair and n2 the second (one less if n is odd), B sequences, H hidden
channels, G gates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trellisnet.core.call import Call
from trellisnet.core.matmul import addmm_, mm

# In smaller or narrower layers nothing is gained: what the products save, more and smaller operations cost. Measured
# with LSTM cells, widths from 16 to 700.
PAIRED = 1 << 17  # hidden states: steps x batch x width
PAIRED_WIDTH = 128


def paired_layers(call: Call) -> tuple[bool, ...]:
    """Per layer, whether its products are computed for pairs of steps.

    The kernel must be dense and have two taps. Only on a CPU, which never computes in half precision here: half has no
    digits to spare for the differences, and whether it pays on a GPU has not been measured.
    """
    possible = call.device.type == "cpu" and len(call.blocks) == 1 and len(call.blocks[0].terms) == 2
    least, wide = PAIRED / (call.batch * call.width), call.width >= PAIRED_WIDTH
    return tuple(
        possible and wide and (i > 0 or call.starts) and layer.rows >= least and layer.reads_neighbours
        for i, layer in enumerate(call.plan.layers)
    )


class Pairs:
    """A kernel (2*H, G*H) for pairs of steps.

    `factors` and `shared` are scratch: three times (n1, B, H), and (n1, B, G*H) if there is a forward pass.
    """

    def __init__(self, weight: Tensor, factors: list[Tensor], shared: Tensor | None) -> None:
        older, newest = weight.chunk(2)
        self.kernels, self.factors, self.shared = (older, older + newest, newest), factors, shared

    def forward(self, rows: Tensor, gates: list[Tensor]) -> None:
        """Add the products of rows (n+1, B, H) to the gates (n1, B, G*H) and (n2, B, G*H)."""
        (first, second), (older, middle, newest) = gates, self._factors(rows)
        assert self.shared is not None
        shared = self.shared[: len(first)]
        mm(middle.flatten(0, 1), self.kernels[1], shared.flatten(0, 1))
        addmm_(first.add_(shared).flatten(0, 1), older.flatten(0, 1), self.kernels[0])
        addmm_(second.add_(shared[: len(second)]).flatten(0, 1), newest.flatten(0, 1), self.kernels[2])

    def backward(
        self,
        rows: Tensor | None,
        grads: list[Tensor],
        grad_kernels: tuple[Tensor, Tensor, Tensor] | None,
        grad_rows: Tensor | None,
    ) -> None:
        """From the gradients of the gates, which are used up, add those of the kernels and of the rows.

        Either may be None: not needed. Without the kernels' no rows are needed.
        """
        first, second = grads
        factors = self._places(len(first), len(second)) if rows is None else self._factors(rows)
        older, middle, newest = factors

        def propagate(k: int, factor: Tensor, grad: Tensor) -> None:
            """Add the gradient of kernel k, and overwrite its factor with the gradient of the factor."""
            if grad_kernels is not None:
                addmm_(grad_kernels[k], factor.flatten(0, 1).t(), grad.flatten(0, 1))
            if grad_rows is not None:
                mm(grad.flatten(0, 1), self.kernels[k].t(), factor.flatten(0, 1))

        propagate(0, older, first)
        propagate(2, newest, second)
        first[: len(second)].add_(second)  # both steps share a product
        propagate(1, middle, first)
        if grad_rows is not None:
            grad_rows[:-1:2].add_(older)
            grad_rows[2::2].add_(newest)
            middle.sub_(older)[: len(newest)].sub_(newest)
            grad_rows[1::2].add_(middle)

    def _factors(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The factors x0 - x1, x1 and x2 - x1 of rows (n+1, B, H)."""
        x0, x1, x2 = rows[:-1:2], rows[1::2], rows[2::2]
        older, middle, newest = self._places(len(x1), len(x2))
        torch.sub(x0, x1, out=older)
        middle.copy_(x1)
        torch.sub(x2, x1[: len(x2)], out=newest)
        return older, middle, newest

    def _places(self, first: int, second: int) -> tuple[Tensor, Tensor, Tensor]:
        older, middle, newest = self.factors
        return older[:first], middle[:first], newest[:second]
