"""The gated cells: LSTM, LSTM with coupled gates, GRU. Their memories are affine, so that sweeps can run them."""

from __future__ import annotations

import torch
from torch import Tensor

from trellisnet.core.cells.base import AffineCell, InPlaceCell, Views

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


class LstmCell(AffineCell, InPlaceCell):
    """The LSTM cell of section 5.1. Gates: input, forget, output, candidate (the three sigmoids side by side)."""

    gates = 4
    weight_scale, gate_biases = 2.0, (0.0, 1.0, 0.0, 0.0)

    def activate(self, pre: Tensor) -> Views:
        return *pre[..., :3, :].sigmoid().unbind(-2), pre[..., 3, :].tanh()

    def affine(self, gates: Views) -> tuple[Tensor, Tensor]:
        i, f, _, g = gates
        return f, i * g

    def expose(self, gates: Views, memory: Tensor) -> Tensor:
        return gates[2] * memory.tanh()

    def views(self, pre: Tensor) -> Views:
        return pre[..., :3, :], *pre.unbind(-2)

    def activate_(self, views: Views) -> None:
        views[0].sigmoid_()
        views[-1].tanh_()

    def factor(self, views: Views) -> Tensor:
        return views[2]

    def offset_(self, views: Views, memory_out: Tensor) -> None:
        torch.mul(views[1], views[4], out=memory_out)

    def expose_(self, views: Views, memory_out: Tensor | None, hidden_out: Tensor) -> None:
        assert memory_out is not None
        torch.tanh(memory_out, out=hidden_out).mul_(views[3])

    def expose_backward_(self, views, memory_out, grad_hidden, grad_memory, scratch):  # type: ignore[no-untyped-def]
        o, squashed = views[3], torch.tanh(memory_out, out=scratch)
        # d(o tanh c) / dc = o - o tanh^2 c
        grad_memory.addcmul_(grad_hidden, o)
        squashed.mul_(grad_hidden.mul_(squashed))
        grad_memory.addcmul_(squashed, o, value=-1)
        _sigmoid_backward(grad_hidden, o, grad_input=o)

    def affine_backward_(self, views: Views, memory: Tensor | None, grad_memory: Tensor, free: Views) -> None:
        _, i, f, _, g = views
        grad_i, grad_g = torch.mul(grad_memory, g, out=free[0]), torch.mul(grad_memory, i, out=free[1])
        _sigmoid_backward(grad_i, i, grad_input=i)
        _tanh_backward(grad_g, g, grad_input=g)
        if memory is None:
            f.zero_()
        else:
            _sigmoid_backward(grad_memory.mul_(memory), f, grad_input=f)


class CoupledCell(AffineCell, InPlaceCell):
    """An LSTM cell whose input gate is 1 - forget gate: a quarter fewer weights. Gates: forget, output, candidate.

    Its memory is a mean of candidates, weighted by the gates, so that it stays within (-1, 1) and the output gate
    reads it as it is. Without a hidden state it is the fo-pooling of a QRNN (Bradbury et al., 2017).
    """

    gates = 3
    weight_scale, gate_biases = 2.0, (1.0, 0.0, 0.0)

    def activate(self, pre: Tensor) -> Views:
        return *pre[..., :2, :].sigmoid().unbind(-2), pre[..., 2, :].tanh()

    def affine(self, gates: Views) -> tuple[Tensor, Tensor]:
        f, _, g = gates
        return f, g - f * g

    def expose(self, gates: Views, memory: Tensor) -> Tensor:
        return gates[1] * memory

    def views(self, pre: Tensor) -> Views:
        return pre[..., :2, :], *pre.unbind(-2)

    def activate_(self, views: Views) -> None:
        views[0].sigmoid_()
        views[-1].tanh_()

    def factor(self, views: Views) -> Tensor:
        return views[1]

    def offset_(self, views: Views, memory_out: Tensor) -> None:
        _, f, _, g = views
        torch.addcmul(g, f, g, value=-1, out=memory_out)

    def expose_(self, views: Views, memory_out: Tensor | None, hidden_out: Tensor) -> None:
        assert memory_out is not None
        torch.mul(memory_out, views[2], out=hidden_out)

    def expose_backward_(self, views, memory_out, grad_hidden, grad_memory, scratch):  # type: ignore[no-untyped-def]
        o = views[2]
        grad_memory.addcmul_(grad_hidden, o)
        _sigmoid_backward(grad_hidden.mul_(memory_out), o, grad_input=o)

    def affine_backward_(self, views: Views, memory: Tensor | None, grad_memory: Tensor, free: Views) -> None:
        _, f, _, g = views
        passed, difference = torch.mul(grad_memory, f, out=free[0]), _minus(memory, g, free[1])
        _sigmoid_backward(difference.mul_(grad_memory), f, grad_input=f)
        _tanh_backward(grad_memory.sub_(passed), g, grad_input=g)


class GruCell(AffineCell, InPlaceCell):
    """The GRU cell as torch defines it. Gates: reset, update, and the two parts of the candidate.

    The candidate is tanh(a + reset * b): in `nn.GRU`, a is the input's part and b the hidden state's. Here both are
    outputs of the kernel: a dense trellis learns what enters where, and `from_rnn` gives torch's cell exactly. The
    memory is the hidden state before dropout.
    """

    gates = 4
    weight_scale = 2.0

    def activate(self, pre: Tensor) -> Views:
        r, z = pre[..., :2, :].sigmoid().unbind(-2)
        a, b = pre[..., 2:, :].unbind(-2)
        return z, (a + r * b).tanh()

    def affine(self, gates: Views) -> tuple[Tensor, Tensor]:
        z, candidate = gates
        return z, candidate - z * candidate

    def expose(self, gates: Views, memory: Tensor) -> Tensor:
        return memory

    def views(self, pre: Tensor) -> Views:
        return pre[..., :2, :], *pre.unbind(-2)

    def activate_(self, views: Views) -> None:
        sigmoids, r, _, a, b = views
        sigmoids.sigmoid_()
        a.addcmul_(r, b).tanh_()

    def factor(self, views: Views) -> Tensor:
        return views[2]

    def offset_(self, views: Views, memory_out: Tensor) -> None:
        _, _, z, candidate, _ = views
        torch.addcmul(candidate, z, candidate, value=-1, out=memory_out)

    def expose_(self, views: Views, memory_out: Tensor | None, hidden_out: Tensor) -> None:
        assert memory_out is not None
        hidden_out.copy_(memory_out)

    def expose_backward_(self, views, memory_out, grad_hidden, grad_memory, scratch):  # type: ignore[no-untyped-def]
        grad_memory.add_(grad_hidden)

    def affine_backward_(self, views: Views, memory: Tensor | None, grad_memory: Tensor, free: Views) -> None:
        _, r, z, candidate, b = views
        passed, difference = torch.mul(grad_memory, z, out=free[0]), _minus(memory, candidate, free[1])
        _sigmoid_backward(difference.mul_(grad_memory), z, grad_input=z)
        grad_a = _tanh_backward(grad_memory.sub_(passed), candidate, grad_input=candidate)
        grad_r = torch.mul(grad_a, b, out=free[1])
        torch.mul(grad_a, r, out=b)
        _sigmoid_backward(grad_r, r, grad_input=r)


def _minus(memory: Tensor | None, candidate: Tensor, out: Tensor) -> Tensor:
    return torch.neg(candidate, out=out) if memory is None else torch.sub(memory, candidate, out=out)
