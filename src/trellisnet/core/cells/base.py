"""What a cell is: the base classes, for a user's own cells and for the engine's.

Shapes: N any leading dimensions, G gates, H channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

Views = tuple[Tensor, ...]


class Cell:
    """Base class of a user's cell: set `gates`, `has_memory`, and write `__call__`.

    Ordinary torch operations are enough: gradients come from autograd. The next layer's convolution reads the hidden
    state (dropout masks it); the next layer's cell reads the memory, unmasked. A cell with parameters also derives from
    `nn.Module`, and writes `forward` instead of `__call__`. With a mixed-group kernel the cell is called for one group
    at a time, and H is the width of that group.

    >>> class Highway(Cell):
    ...     gates, has_memory = 2, True
    ...     def __call__(self, pre, memory):
    ...         candidate, gate = pre.unbind(-2)
    ...         state = torch.lerp(memory, candidate.tanh(), gate.sigmoid())
    ...         return state, state
    >>> from trellisnet import TrellisNet
    >>> y, state = TrellisNet(3, 8, num_layers=4, cell=Highway())(torch.randn(10, 2, 3))
    >>> tuple(y.shape)
    (10, 2, 8)
    """

    gates: int
    has_memory: bool
    weight_scale: float = 1.0  # weights start from U(-s/sqrt(H), s/sqrt(H)); see docs/initialisation.md
    gate_biases: tuple[float, ...] | None = None  # initial biases, one value per gate; None: zero

    def __call__(self, pre: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Map pre-activations (..., G, H) and the memory (..., H) to a hidden state and a memory (..., H).

        The number of leading dimensions varies: index from the end.
        """
        if isinstance(self, nn.Module):  # also if `Cell` is the first of the bases
            state: tuple[Tensor, Tensor | None] = nn.Module.__call__(self, pre, memory)
            return state
        raise TypeError(f"{type(self).__name__} does not define __call__(pre, memory)")


class AffineCell(Cell):
    """Base class of a cell whose memory is affine in the memory before: m' = a m + b, with a and b from the gates.

    Only such cells can be run by sweeps, which need the memory along a whole sequence before any hidden state. A cell
    writes `affine` and `expose`, and `activate` if both need the same activations.

    >>> class Highway(AffineCell):
    ...     gates = 2
    ...     def activate(self, pre):
    ...         candidate, gate = pre.unbind(-2)
    ...         return candidate.tanh(), gate.sigmoid()
    ...     def affine(self, gates):
    ...         candidate, gate = gates
    ...         return 1 - gate, gate * candidate
    ...     def expose(self, gates, memory):
    ...         return memory
    >>> from trellisnet import TrellisNet
    >>> y, state = TrellisNet(3, 8, num_layers=2, cell=Highway(), path="sweeps")(torch.randn(10, 2, 3))
    """

    has_memory = True

    def __init_subclass__(cls) -> None:
        """Let a cell with parameters name its bases in either order: torch calls `forward` of a module."""
        super().__init_subclass__()
        if issubclass(cls, nn.Module) and cls.forward is nn.Module.forward:
            cls.forward = AffineCell.__call__

    def activate(self, pre: Tensor) -> Views:
        """The gates (..., H) that the other methods get, from pre-activations (..., G, H). Default: these."""
        return pre.unbind(-2)

    def affine(self, gates: Views) -> tuple[Tensor, Tensor]:
        """The factor a and the offset b (..., H)."""
        raise TypeError(f"{type(self).__name__} does not define affine(gates)")

    def expose(self, gates: Views, memory: Tensor) -> Tensor:
        """The hidden state (..., H), from the gates and the new memory."""
        raise TypeError(f"{type(self).__name__} does not define expose(gates, memory)")

    def __call__(self, pre: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        gates = self.activate(pre)
        factor, offset = self.affine(gates)
        assert memory is not None
        memory = factor * memory + offset
        return self.expose(gates, memory), memory


class InPlaceCell(Cell, ABC):
    """A cell with a gradient of its own, so that the engine can run it in place and without autograd's storage.

    Its methods work on `views` of the pre-activations, which become gates and at last the gradients of the
    pre-activations. A cell without a memory needs only `activate_`, `expose_` and `expose_backward_`.
    """

    def views(self, pre: Tensor) -> Views:
        """The parts of `pre` (N, G, H) that the other methods work on. Separate, so that a stream makes them once."""
        return pre.unbind(-2)

    @abstractmethod
    def activate_(self, views: Views) -> None:
        """Turn pre-activations into gates, in place."""

    def factor(self, views: Views) -> Tensor:
        """What the memory before is multiplied by (N, H); for cells that have one."""
        raise TypeError(f"{type(self).__name__} has a memory, but does not define factor(views)")

    def offset_(self, views: Views, memory_out: Tensor) -> None:
        """Write what is added to that product (N, H); for cells that have a memory."""
        raise TypeError(f"{type(self).__name__} has a memory, but does not define offset_(views, memory_out)")

    @abstractmethod
    def expose_(self, views: Views, memory_out: Tensor | None, hidden_out: Tensor) -> None:
        """Write the new hidden state (N, H), from the gates and the new memory."""

    @abstractmethod
    def expose_backward_(
        self,
        views: Views,
        memory_out: Tensor | None,
        grad_hidden: Tensor,
        grad_memory: Tensor | None,
        scratch: Tensor | None,
    ) -> None:
        """Add the new memory's gradient through `expose_` to `grad_memory`, and overwrite the gates that only `expose_`
        reads with the gradients of their pre-activations.

        `grad_hidden` and `scratch` (N, H), which may be `memory_out` itself, are used up.
        """

    def affine_backward_(self, views: Views, memory: Tensor | None, grad_memory: Tensor, free: Views) -> None:
        """Overwrite the other gates with the gradients of their pre-activations, from that of the new memory.

        `memory` is the memory before (None: zeros); `grad_memory` and the two tensors in `free` (N, H) are used up.
        """
        name = type(self).__name__
        raise TypeError(f"{name} has a memory, but does not define affine_backward_(views, memory, grad_memory, free)")

    def remember_(self, views: Views, memory: Tensor | None, memory_out: Tensor) -> None:
        """Write the new memory (N, H), from the gates and the memory before (None: zeros)."""
        self.offset_(views, memory_out)
        if memory is not None:
            memory_out.addcmul_(self.factor(views), memory)

    def forward_(self, views: Views, memory: Tensor | None, hidden_out: Tensor, memory_out: Tensor | None) -> None:
        """From pre-activations to the new hidden state and memory."""
        self.activate_(views)
        if memory_out is not None:
            self.remember_(views, memory, memory_out)
        self.expose_(views, memory_out, hidden_out)

    def backward_(
        self,
        views: Views,
        memory: Tensor | None,
        memory_out: Tensor | None,
        grad_hidden: Tensor,
        grad_memory: Tensor | None,
        grad_memory_before: Tensor | None,
    ) -> None:
        """Overwrite the gates with the gradients of the pre-activations, and write that of the memory before.

        The incoming gradients and `memory_out` are used up.
        """
        self.expose_backward_(views, memory_out, grad_hidden, grad_memory, memory_out)
        if grad_memory is None or memory_out is None:
            return
        if grad_memory_before is not None:
            torch.mul(grad_memory, self.factor(views), out=grad_memory_before)
        self.affine_backward_(views, memory, grad_memory, (grad_hidden, memory_out))
