"""Each cell: its gradient by finite differences, its in-place form against its definition."""

import pytest
import torch
from torch import nn

from reference import assert_close
from trellisnet import Cell, TrellisNet
from trellisnet.core.cells import CELLS
from trellisnet.core.cells.rnn import TanhCell


@pytest.mark.parametrize("memory", ["store", "recompute"])
@pytest.mark.parametrize("name", CELLS)
def test_gradcheck(name, memory):
    net = TrellisNet(2, 3, num_layers=3, cell=name, memory=memory)
    names, values = zip(*net.named_parameters(), strict=True)

    def run(x, h, c, *parameters):
        state = (h, c if net.cell.has_memory else None)
        bound = dict(zip(names, parameters, strict=True))
        y, after = torch.func.functional_call(net, bound, (x, state))
        return y, after.h

    inputs = [torch.randn(3, 2, 2), torch.randn(2, 3), torch.randn(2, 3), *(torch.randn_like(v) for v in values)]
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize("with_memory", [True, False])
@pytest.mark.parametrize("name", CELLS)
def test_in_place_form_is_the_definition(name, with_memory):
    cell = CELLS[name]
    pre = torch.randn(5, 2, cell.gates, 3, requires_grad=True)
    memory = (torch.randn(5, 2, 3) * with_memory).requires_grad_()
    hidden, after = cell(pre, memory)
    gates = pre.detach().clone()
    hidden_out = torch.empty(5, 2, 3)
    memory_out = torch.empty(5, 2, 3) if cell.has_memory else None
    given = memory.detach() if with_memory and cell.has_memory else None
    cell.forward_(cell.views(gates), given, hidden_out, memory_out)
    assert_close((hidden_out, memory_out), (hidden, after), 1e-14)
    grads = [torch.randn(5, 2, 3), torch.randn(5, 2, 3)]
    outputs = [hidden, after] if cell.has_memory else [hidden]
    inputs = [pre, memory] if cell.has_memory else [pre]
    expected = torch.autograd.grad(outputs, inputs, grads[: len(outputs)])
    grad_before = torch.empty(5, 2, 3) if cell.has_memory else None
    cell.backward_(cell.views(gates), given, memory_out, *grads, grad_before)
    assert_close([gates, grad_before][: len(expected)], expected, 1e-14)


class Scaled(nn.Module, Cell):
    """A user's cell with parameters of its own."""

    gates, has_memory = 1, False

    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, pre, memory):
        return (pre.squeeze(-2) * self.scale).tanh(), None


class CellFirst(Cell, nn.Module):
    """The same with its bases in the other order."""

    gates, has_memory, forward = 1, False, Scaled.forward

    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))


@pytest.mark.parametrize("kind", [Scaled, CellFirst])
def test_parameters_of_a_users_cell_are_trained(kind):
    net = TrellisNet(2, 4, num_layers=3, cell=kind(4))
    assert "cell.scale" in dict(net.named_parameters())
    net(torch.randn(5, 2, 2))[0].square().sum().backward()
    assert net.cell.scale.grad.abs().min() > 0


@pytest.mark.parametrize("result", [lambda h: h, lambda h: (h, None), lambda h: (h[..., :1], h), lambda h: (h, h[:1])])
def test_what_a_users_cell_returns_is_checked(result):
    class Wrong(Cell):
        gates, has_memory = 1, True

        def __call__(self, pre, memory):
            return result(pre.squeeze(-2))

    with pytest.raises(ValueError, match=r"cell Wrong must return a pair.*\(5, 2, 4\)"):
        TrellisNet(2, 4, num_layers=3, cell=Wrong())(torch.randn(5, 2, 2))


def test_gate_biases_are_checked():
    class Wrong(Scaled):
        gate_biases = (0.0, 1.0)

    with pytest.raises(ValueError, match="gate_biases must have 1 values"):
        TrellisNet(2, 4, num_layers=3, cell=Wrong(4))


def test_a_cell_without_call_says_so():
    class Empty(Cell):
        gates, has_memory = 1, False

    with pytest.raises(TypeError, match="Empty does not define __call__"):
        TrellisNet(2, 4, num_layers=3, cell=Empty())(torch.randn(5, 2, 2))


def test_in_place_cell_must_say_how_it_remembers():
    class Forgetful(TanhCell):
        has_memory = True

    with pytest.raises(TypeError, match="Forgetful has a memory, but does not define offset_"):
        TrellisNet(2, 3, 2, cell=Forgetful())(torch.randn(4, 1, 2))
