"""The kernel of a block on the way down, where its taps are used as the one matrix that they are.

Two large products take less time than two small ones a tap. The gradient of the kernel is a sum over layers, and adding
to so large a matrix takes time too. So what several layers have read is collected and multiplied at once, up to
`COLLECTED` rows, where the gradients of their gates lie side by side in memory: in wide nets of one block.
Shapes: n rows of a tile (steps and sequences), C channels of all taps, G*H gates.
"""

from __future__ import annotations

import torch
from torch import Tensor

# So many rows are collected at most: for more, the addition is nothing beside the product.
COLLECTED = 1024


class JoinedKernel:
    """The kernel, its gradient, and what the last layers have read, whose part of the gradient is still to be added."""

    def __init__(self, matrix: Tensor, terms: list[slice], most: int) -> None:
        """`matrix` is (C, G*H), `terms` are the rows of each term; no tile has more than `most` rows."""
        self.matrix, self.terms = matrix, terms
        self.gradient = torch.zeros_like(matrix)
        self.storage = matrix.new_empty(max(most, COLLECTED), len(matrix))
        self.grad_gates: Tensor | None = None  # belongs to the last rows of the storage

    def add_read(self, taps: list[Tensor], grad_gates: Tensor) -> None:
        """Take into account what the taps have read, (n, channels) each, where the gates have those gradients."""
        rows = len(grad_gates)
        if self.grad_gates is not None:
            if _is_before(grad_gates, self.grad_gates) and rows + len(self.grad_gates) <= len(self.storage):
                rows += len(self.grad_gates)
            else:
                self.settle()
        start = len(self.storage) - rows
        for tap, columns in zip(taps, self._columns(start, start + len(grad_gates)), strict=True):
            columns.copy_(tap)
        self.grad_gates = grad_gates.as_strided((rows, grad_gates.shape[1]), grad_gates.stride())
        if start < len(grad_gates):  # `grad_read` needs the room
            self.settle()

    def settle(self) -> None:
        """Add to the gradient what is still to be added."""
        if self.grad_gates is not None:
            self.gradient.addmm_(self.storage[-len(self.grad_gates) :].t(), self.grad_gates)
            self.grad_gates = None

    def grad_read(self, grad_gates: Tensor) -> list[Tensor]:
        """The gradients of what the taps have read, valid until more is read."""
        torch.mm(grad_gates, self.matrix.t(), out=self.storage[: len(grad_gates)])
        return self._columns(0, len(grad_gates))

    def _columns(self, start: int, stop: int) -> list[Tensor]:
        return [self.storage[start:stop, term] for term in self.terms]


def _is_before(first: Tensor, second: Tensor) -> bool:
    """Whether one matrix lies directly before another in memory, so that they are one matrix."""
    same = first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    return same and first.storage_offset() + first.numel() == second.storage_offset()
