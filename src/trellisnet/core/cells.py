"""Cells: how pre-activations become a state.

A cell maps the pre-activations of one step of one layer, and the memory of the level below one dilation earlier, to
the new hidden state and the new memory. Shapes: N any leading dimensions, G gates, H channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from trellisnet.core.checks import one_of

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input
_threshold_backward = torch.ops.aten.threshold_backward.grad_input

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


class InPlaceCell(Cell, ABC):
    """A cell with a gradient of its own, so that the engine can run it in place and without autograd's storage.

    The memory is None in the first layer of a sequence without a state, where it is all zeros.
    """

    def views(self, pre: Tensor) -> Views:
        """The parts of `pre` (N, G, H) that the other methods work on. Separate, so that a stream makes them once."""
        return pre.unbind(-2)

    @abstractmethod
    def activate_(self, views: Views) -> None:
        """Turn pre-activations into gates, in place."""

    def remember_(self, views: Views, memory: Tensor | None, memory_out: Tensor) -> None:
        """Write the new memory (N, H), from the gates and the memory before; for cells that have one."""
        raise TypeError(f"{type(self).__name__} has a memory, but does not define remember_(views, memory, memory_out)")

    @abstractmethod
    def expose_(self, views: Views, memory_out: Tensor | None, hidden_out: Tensor) -> None:
        """Write the new hidden state (N, H), from the gates and the new memory."""

    def forward_(self, views: Views, memory: Tensor | None, hidden_out: Tensor, memory_out: Tensor | None) -> None:
        """All three: from pre-activations to the new hidden state and memory."""
        self.activate_(views)
        if memory_out is not None:
            self.remember_(views, memory, memory_out)
        self.expose_(views, memory_out, hidden_out)

    @abstractmethod
    def backward_(
        self,
        gates: Tensor,
        memory: Tensor | None,
        memory_out: Tensor | None,
        grad_hidden: Tensor,
        grad_memory: Tensor | None,
        grad_memory_before: Tensor | None,
    ) -> None:
        """Overwrite the gates with the gradients of `pre`, and write the gradient of the memory before.

        May use the incoming gradients and `memory_out` as scratch.
        """


class TanhCell(InPlaceCell):
    """The cell of `nn.RNN`: h = tanh(pre)."""

    gates, has_memory = 1, False

    def __call__(self, pre: Tensor, memory: Tensor | None) -> tuple[Tensor, None]:
        return pre.squeeze(-2).tanh(), None

    def activate_(self, views: Views) -> None:
        views[0].tanh_()

    def expose_(self, views: Views, memory_out: Tensor | None, hidden_out: Tensor) -> None:
        hidden_out.copy_(views[0])

    def backward_(self, gates, memory, memory_out, grad_hidden, grad_memory, grad_memory_before):  # type: ignore[no-untyped-def]
        gate = gates.squeeze(-2)
        _tanh_backward(grad_hidden, gate, grad_input=gate)


class ReluCell(InPlaceCell):
    """The cell of `nn.RNN(nonlinearity="relu")`: h = relu(pre)."""

    gates, has_memory = 1, False

    def __call__(self, pre: Tensor, memory: Tensor | None) -> tuple[Tensor, None]:
        return pre.squeeze(-2).relu(), None

    def activate_(self, views: Views) -> None:
        views[0].relu_()

    def expose_(self, views: Views, memory_out: Tensor | None, hidden_out: Tensor) -> None:
        hidden_out.copy_(views[0])

    def backward_(self, gates, memory, memory_out, grad_hidden, grad_memory, grad_memory_before):  # type: ignore[no-untyped-def]
        gate = gates.squeeze(-2)
        _threshold_backward(grad_hidden, gate, 0, grad_input=gate)


class LstmCell(InPlaceCell):
    """The LSTM cell of section 5.1. Gates: input, forget, output, candidate (the three sigmoids side by side)."""

    gates, has_memory = 4, True
    weight_scale, gate_biases = 2.0, (0.0, 1.0, 0.0, 0.0)

    def __call__(self, pre: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        assert memory is not None
        i, f, o = pre[..., :3, :].sigmoid().unbind(-2)
        g = pre[..., 3, :].tanh()
        memory = f * memory + i * g
        return o * memory.tanh(), memory

    def views(self, pre: Tensor) -> Views:
        return pre[..., :3, :], *pre.unbind(-2)

    def activate_(self, views: Views) -> None:
        views[0].sigmoid_()
        views[-1].tanh_()

    def remember_(self, views: Views, memory: Tensor | None, memory_out: Tensor) -> None:
        _, i, f, _, g = views
        if memory is None:
            torch.mul(i, g, out=memory_out)
        else:
            torch.mul(f, memory, out=memory_out).addcmul_(i, g)

    def expose_(self, views: Views, memory_out: Tensor | None, hidden_out: Tensor) -> None:
        assert memory_out is not None
        torch.tanh(memory_out, out=hidden_out).mul_(views[3])

    def backward_(self, gates, memory, memory_out, grad_hidden, grad_memory, grad_memory_before):  # type: ignore[no-untyped-def]
        i, f, o, g = gates.unbind(-2)
        squashed = memory_out.tanh_()
        # d(o tanh c) / dc = o - o tanh^2 c
        grad_memory.addcmul_(grad_hidden, o)
        squashed.mul_(grad_hidden.mul_(squashed))
        grad_memory.addcmul_(squashed, o, value=-1)
        _sigmoid_backward(grad_hidden, o, grad_input=o)
        torch.mul(grad_memory, g, out=grad_hidden)
        torch.mul(grad_memory, i, out=squashed)
        _sigmoid_backward(grad_hidden, i, grad_input=i)
        _tanh_backward(squashed, g, grad_input=g)
        if grad_memory_before is not None:
            torch.mul(grad_memory, f, out=grad_memory_before)
        if memory is None:
            f.zero_()
        else:
            _sigmoid_backward(grad_memory.mul_(memory), f, grad_input=f)


class GruCell(InPlaceCell):
    """The GRU cell as torch defines it. Gates: reset, update, and the two parts of the candidate.

    The candidate is tanh(a + reset * b): in `nn.GRU`, a is the input's part and b the hidden state's. Here both are
    outputs of the kernel: a dense trellis learns what enters where, and `from_rnn` gives torch's cell exactly. The
    memory is the hidden state before dropout.
    """

    gates, has_memory = 4, True
    weight_scale = 2.0

    def __call__(self, pre: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        assert memory is not None
        r, z = pre[..., :2, :].sigmoid().unbind(-2)
        a, b = pre[..., 2:, :].unbind(-2)
        candidate = (a + r * b).tanh()
        state = candidate + z * (memory - candidate)
        return state, state

    def views(self, pre: Tensor) -> Views:
        return pre[..., :2, :], *pre.unbind(-2)

    def activate_(self, views: Views) -> None:
        sigmoids, r, _, a, b = views
        sigmoids.sigmoid_()
        a.addcmul_(r, b).tanh_()

    def remember_(self, views: Views, memory: Tensor | None, memory_out: Tensor) -> None:
        _, _, z, candidate, _ = views
        if memory is None:
            torch.mul(candidate, z, out=memory_out).neg_()
        else:
            torch.sub(memory, candidate, out=memory_out).mul_(z)
        memory_out.add_(candidate)

    def expose_(self, views: Views, memory_out: Tensor | None, hidden_out: Tensor) -> None:
        assert memory_out is not None
        hidden_out.copy_(memory_out)

    def backward_(self, gates, memory, memory_out, grad_hidden, grad_memory, grad_memory_before):  # type: ignore[no-untyped-def]
        r, z, candidate, b = gates.unbind(-2)
        grad_state = grad_memory.add_(grad_hidden)
        torch.mul(grad_state, z, out=grad_hidden)
        spare = torch.neg(candidate, out=memory_out) if memory is None else torch.sub(memory, candidate, out=memory_out)
        _sigmoid_backward(spare.mul_(grad_state), z, grad_input=z)
        if grad_memory_before is not None:
            grad_memory_before.copy_(grad_hidden)
        grad_a = _tanh_backward(grad_state.sub_(grad_hidden), candidate, grad_input=candidate)
        torch.mul(grad_a, b, out=spare)
        torch.mul(grad_a, r, out=b)
        _sigmoid_backward(spare, r, grad_input=r)


CELLS: dict[str, InPlaceCell] = {"tanh": TanhCell(), "relu": ReluCell(), "lstm": LstmCell(), "gru": GruCell()}


def make_cell(cell: str | Cell) -> Cell:
    """Return the cell of that name, or the user's own cell after a check of its two attributes."""
    if isinstance(cell, Cell):
        if not isinstance(getattr(cell, "gates", None), int) or cell.gates < 1:
            raise ValueError(f"cell.gates must be a positive integer, got {getattr(cell, 'gates', None)!r}")
        if not isinstance(getattr(cell, "has_memory", None), bool):
            raise ValueError(f"cell.has_memory must be True or False, got {getattr(cell, 'has_memory', None)!r}")
        if cell.gate_biases is not None and len(cell.gate_biases) != cell.gates:
            raise ValueError(f"cell.gate_biases must have {cell.gates} values, one per gate, got {cell.gate_biases}")
        return cell
    if not isinstance(cell, str):
        raise TypeError(f"cell must be a name or a Cell, got {cell!r}")
    return CELLS[one_of("cell", cell, CELLS)]
