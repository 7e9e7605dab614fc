"""Each cell: its gradient by finite differences, its in-place form against its definition."""

import math

import pytest
import torch
from torch import nn

from reference import assert_as_specified, assert_close, gradients
from trellisnet import AffineCell, Cell, TrellisNet
from trellisnet.baselines.nas import NasBody
from trellisnet.core.cells import CELLS, InPlaceCell
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
@pytest.mark.parametrize("name", [name for name, cell in CELLS.items() if isinstance(cell, InPlaceCell)])
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


@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (7, 3)])
def test_one_layer_of_nas_cells_by_steps_is_the_recurrent_net(steps, batch):
    body = NasBody(2, hidden_size=5)
    net = TrellisNet(2, 5, num_layers=1, cell="nas", path="steps", hidden_taps=1, bias=False)
    w, u = (weight.detach().t().unflatten(1, (8, 5)) for weight in (body.layers[0].w, body.layers[0].u))
    with torch.no_grad():
        for weight, given, empty in ((net.kernel.weight_input, w, 4), (net.kernel.weight_hidden, u, 3)):
            weight.zero_()
            gates = weight[-1].unflatten(1, (9, 5))
            for gate in range(9):
                if gate != empty:  # the input has no part in the factor b, the hidden state none in a
                    gates[:, gate] = given[:, gate if gate < 4 else gate - 1]
    x = torch.randn(steps, batch, 2, requires_grad=True)
    (ours, state), (theirs, (h, c)) = net(x), body(x)
    assert_close((ours, state.last[0], state.last[1]), (theirs, h[0], c[0]))
    assert_close(gradients(ours, x), gradients(theirs, x))


def test_the_highway_cell_is_its_equation():
    pre, memory = torch.randn(5, 2, 2, 3), torch.randn(5, 2, 3)
    hidden, after = CELLS["highway"](pre, memory)
    for (i, j, k), before in zip(torch.cartesian_prod(*map(torch.arange, (5, 2, 3))), memory.flatten(), strict=True):
        transform = 1 / (1 + math.exp(-pre[i, j, 1, k]))
        expected = transform * math.tanh(pre[i, j, 0, k]) + (1 - transform) * before
        assert_close((hidden[i, j, k], after[i, j, k]), (expected, expected))


@pytest.mark.parametrize("name", ["darts", "enas"])
def test_a_cell_with_matrices_of_its_own_is_no_trellis_cell(name):
    with pytest.raises(
        ValueError, match=f"cell '{name}' cannot be a trellis cell: .* matrices of its own .*body='{name}'"
    ):
        TrellisNet(2, 3, 2, cell=name)


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


class Decay(AffineCell):
    """A factor per channel, as a parameter."""

    gates = 1

    def __init__(self, width):
        super().__init__()
        self.decay = nn.Parameter(torch.linspace(0.1, 0.9, width))

    def affine(self, gates):
        return self.decay, gates[0].tanh()

    def expose(self, gates, memory):
        return memory


class CellFirst(Decay, nn.Module):
    pass


class ModuleFirst(nn.Module, AffineCell):
    gates, affine, expose = 1, Decay.affine, Decay.expose

    def __init__(self, width):
        super().__init__()
        self.decay = nn.Parameter(torch.linspace(0.1, 0.9, width))


@pytest.mark.parametrize("kind", [ModuleFirst, CellFirst])
def test_a_cell_with_parameters_takes_all_paths(kind):
    net = TrellisNet(2, 6, 3, cell=kind(6))
    for path in ("layers", "sweeps", "steps"):
        net.path = path
        assert_as_specified(net, torch.randn(6, 2, 2))  # as many steps as channels: a factor must not run along time
