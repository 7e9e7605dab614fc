"""Cells: how pre-activations become a state.

A cell sees the pre-activations of one position of one layer and the memory of the layer below, one
dilation earlier, and gives the new hidden state and the new memory. Shapes: N any leading dimensions,
G gates, H channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from trellisnet.core.checks import one_of

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input

Views = tuple[Tensor, ...]


class Cell:
    """Base class for a cell of one's own: set `gates`, `has_memory`, and write `__call__`.

    Ordinary torch operations are enough: gradients come from autograd. The hidden state is what the next
    layer's convolution reads (dropout masks it); the memory goes to the next layer's cell unmasked.
    A cell with parameters also derives from `nn.Module`, and writes `forward` instead of `__call__`.

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
    gate_biases: tuple[float, ...] | None = None  # where the biases start, one value a gate; None: zero

    def __call__(self, pre: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Map pre-activations (..., G, H) and the memory (..., H) to a hidden state and a memory (..., H).

        How many dimensions come first varies: index from the end.
        """
        if isinstance(self, nn.Module):  # also where `Cell` stands first among the bases
            state: tuple[Tensor, Tensor | None] = nn.Module.__call__(self, pre, memory)
            return state
        raise TypeError(f"{type(self).__name__} does not define __call__(pre, memory)")


class InPlaceCell(Cell, ABC):
    """A cell that also knows its own gradient, so that the engine can run it without autograd's storage.

    The memory is None in the first layer of a sequence without history, where it is all zeros.
    """

    def views(self, pre: Tensor) -> Views:
        """The parts of `pre` (N, G, H) that the following work on: apart, so that a stream makes them only once."""
        return pre.unbind(-2)

    @abstractmethod
    def activate_(self, views: Views) -> None:
        """Turn pre-activations into gates, in place."""

    @abstractmethod
    def combine_(self, views: Views, memory: Tensor | None, hidden_out: Tensor, memory_out: Tensor | None) -> None:
        """Write the new state (N, H) that the gates make of the memory."""

    def forward_(self, views: Views, memory: Tensor | None, hidden_out: Tensor, memory_out: Tensor | None) -> None:
        """Both in one: from pre-activations to the new state."""
        self.activate_(views)
        self.combine_(views, memory, hidden_out, memory_out)

    @abstractmethod
    def backward_(
        self,
        gates: Tensor,
        memory: Tensor | None,
        memory_out: Tensor | None,
        grad_hidden: Tensor,
        grad_memory: Tensor | None,
        grad_pre: Tensor,
        grad_memory_before: Tensor | None,
    ) -> None:
        """Write the gradients of `pre` and of the memory before. May use the incoming gradients as scratch space."""


class TanhCell(InPlaceCell):
    """The cell of `nn.RNN`: h = tanh(pre)."""

    gates, has_memory = 1, False

    def __call__(self, pre: Tensor, memory: Tensor | None) -> tuple[Tensor, None]:
        return pre.squeeze(-2).tanh(), None

    def activate_(self, views: Views) -> None:
        views[0].tanh_()

    def combine_(self, views: Views, memory: Tensor | None, hidden_out: Tensor, memory_out: Tensor | None) -> None:
        hidden_out.copy_(views[0])

    def backward_(self, gates, memory, memory_out, grad_hidden, grad_memory, grad_pre, grad_memory_before):  # type: ignore[no-untyped-def]
        _tanh_backward(grad_hidden, gates.squeeze(-2), grad_input=grad_pre.squeeze(-2))


class ReluCell(InPlaceCell):
    """The cell of `nn.RNN(nonlinearity="relu")`: h = relu(pre)."""

    gates, has_memory = 1, False

    def __call__(self, pre: Tensor, memory: Tensor | None) -> tuple[Tensor, None]:
        return pre.squeeze(-2).relu(), None

    def activate_(self, views: Views) -> None:
        views[0].relu_()

    def combine_(self, views: Views, memory: Tensor | None, hidden_out: Tensor, memory_out: Tensor | None) -> None:
        hidden_out.copy_(views[0])

    def backward_(self, gates, memory, memory_out, grad_hidden, grad_memory, grad_pre, grad_memory_before):  # type: ignore[no-untyped-def]
        grad_pre.squeeze(-2).copy_(torch.ops.aten.threshold_backward(grad_hidden, gates.squeeze(-2), 0))


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

    def combine_(self, views: Views, memory: Tensor | None, hidden_out: Tensor, memory_out: Tensor | None) -> None:
        assert memory_out is not None
        _, i, f, o, g = views
        if memory is None:
            torch.mul(i, g, out=memory_out)
        else:
            torch.mul(f, memory, out=memory_out).addcmul_(i, g)
        torch.tanh(memory_out, out=hidden_out).mul_(o)

    def backward_(self, gates, memory, memory_out, grad_hidden, grad_memory, grad_pre, grad_memory_before):  # type: ignore[no-untyped-def]
        i, f, o, g = gates.unbind(-2)
        d_i, d_f, d_o, d_g = grad_pre.unbind(-2)
        squashed = memory_out.tanh()
        torch.mul(grad_hidden, squashed, out=d_o)
        _sigmoid_backward(d_o, o, grad_input=d_o)
        grad_hidden.mul_(o)
        _tanh_backward(grad_hidden, squashed, grad_input=squashed)
        grad_memory.add_(squashed)
        torch.mul(grad_memory, g, out=d_i)
        _sigmoid_backward(d_i, i, grad_input=d_i)
        torch.mul(grad_memory, i, out=d_g)
        _tanh_backward(d_g, g, grad_input=d_g)
        if memory is None:
            d_f.zero_()
        else:
            torch.mul(grad_memory, memory, out=d_f)
            _sigmoid_backward(d_f, f, grad_input=d_f)
        if grad_memory_before is not None:
            torch.mul(grad_memory, f, out=grad_memory_before)


class GruCell(InPlaceCell):
    """The GRU cell as torch defines it. Gates: reset, update, and the two parts of the candidate.

    The candidate is tanh(a + reset * b): in `nn.GRU`, a is the input's part and b the hidden state's.
    Here both are outputs of the kernel, so a dense trellis learns what goes where, and `from_rnn`
    restores torch's cell exactly. The memory is the hidden state before dropout.
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

    def combine_(self, views: Views, memory: Tensor | None, hidden_out: Tensor, memory_out: Tensor | None) -> None:
        assert memory_out is not None
        _, _, z, candidate, _ = views
        if memory is None:
            torch.mul(candidate, z, out=memory_out).neg_()
        else:
            torch.sub(memory, candidate, out=memory_out).mul_(z)
        hidden_out.copy_(memory_out.add_(candidate))

    def backward_(self, gates, memory, memory_out, grad_hidden, grad_memory, grad_pre, grad_memory_before):  # type: ignore[no-untyped-def]
        r, z, candidate, b = gates.unbind(-2)
        d_r, d_z, d_a, d_b = grad_pre.unbind(-2)
        grad_state = grad_memory.add_(grad_hidden)
        if memory is None:
            torch.mul(grad_state, candidate, out=d_z).neg_()
        else:
            torch.sub(memory, candidate, out=d_z).mul_(grad_state)
        _sigmoid_backward(d_z, z, grad_input=d_z)
        torch.mul(grad_state, z, out=grad_hidden)
        torch.sub(grad_state, grad_hidden, out=d_a)
        _tanh_backward(d_a, candidate, grad_input=d_a)
        torch.mul(d_a, r, out=d_b)
        torch.mul(d_a, b, out=d_r)
        _sigmoid_backward(d_r, r, grad_input=d_r)
        if grad_memory_before is not None:
            grad_memory_before.copy_(grad_hidden)


CELLS: dict[str, InPlaceCell] = {"tanh": TanhCell(), "relu": ReluCell(), "lstm": LstmCell(), "gru": GruCell()}


def make_cell(cell: str | Cell) -> Cell:
    """Return the cell of that name, or the user's own cell after a check of its two attributes."""
    if isinstance(cell, Cell):
        if not isinstance(getattr(cell, "gates", None), int) or cell.gates < 1:
            raise ValueError(f"cell.gates must be a positive integer, got {getattr(cell, 'gates', None)!r}")
        if not isinstance(getattr(cell, "has_memory", None), bool):
            raise ValueError(f"cell.has_memory must be True or False, got {getattr(cell, 'has_memory', None)!r}")
        if cell.gate_biases is not None and len(cell.gate_biases) != cell.gates:
            raise ValueError(f"cell.gate_biases must have {cell.gates} values, one a gate, got {cell.gate_biases}")
        return cell
    if not isinstance(cell, str):
        raise TypeError(f"cell must be a name or a Cell, got {cell!r}")
    return CELLS[one_of("cell", cell, CELLS)]
