"""The products of pairs of steps: equal to those of single steps, and used where they should be."""

import copy
from itertools import product

import pytest
import torch

from reference import assert_as_specified, assert_close, gradients, make
from trellisnet import TrellisNet
from trellisnet.core.engine import tiles
from trellisnet.core.engine.pairs import Pairs

WIDTH, GATES = 3, 8


@pytest.fixture
def paired(monkeypatch):
    """Even the smallest layers are paired; the fixture tells, for each form of call, which of them are."""
    calls, choose = [], tiles.paired_layers
    monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED", 1)
    monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED_WIDTH", 1)
    monkeypatch.setattr(tiles, "paired_layers", lambda *args: calls.append(choose(*args)) or calls[-1])
    return calls


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("steps", [2, 3, 4, 7])
def test_three_products_equal_four(steps, batch):
    weight, rows = torch.randn(2 * WIDTH, GATES), torch.randn(steps + 1, batch, WIDTH)
    half = (steps + 1) // 2
    pairs = Pairs(weight, [*torch.empty(3, half, batch, WIDTH)], torch.empty(half, batch, GATES))
    gates = torch.ones(steps, batch, GATES)  # the products are added to them
    first, second = gates[:half], gates[half:]
    pairs.forward(rows, [first, second])
    variables = [tensor.clone().requires_grad_() for tensor in (rows, weight)]
    expected = torch.cat([variables[0][:-1], variables[0][1:]], -1) @ variables[1]
    assert_close([first - 1, second - 1], [expected[::2], expected[1::2]], 1e-12)

    grads = torch.randn(steps, batch, GATES)
    grad_rows, grad_weight = torch.autograd.grad(expected, variables, grads)
    for wants_rows, wants_kernels in product((True, False), (True, False)):
        kernels = torch.ones(3, WIDTH, GATES) if wants_kernels else None  # both are added to
        below = torch.ones_like(rows) if wants_rows else None
        pairs.backward(rows if wants_kernels else None, [grads[::2].clone(), grads[1::2]], kernels, below)
        if kernels is not None:
            older, shared, newest = kernels - 1
            assert_close(torch.cat([older + shared, newest + shared]), grad_weight, 1e-12)
        if below is not None:
            assert_close(below - 1, grad_rows, 1e-12)


@pytest.mark.parametrize("cell", ["tanh", "relu", "lstm", "gru"])
@pytest.mark.parametrize("tile_rows", [1, 5, 1024])
@pytest.mark.parametrize("memory", ["store", "recompute"])
def test_equals_specification(monkeypatch, paired, memory, tile_rows, cell):
    monkeypatch.setattr("trellisnet.core.engine.tiles.TILE", 1)
    monkeypatch.setattr("trellisnet.core.engine.tiles.TILE_ROWS", tile_rows)
    for input_size, (steps, batch) in product((2, 20), [(1, 1), (2, 3), (7, 1), (8, 2)]):
        net = make(input_size, cell=cell, memory=memory)
        assert_as_specified(net, torch.randn(steps, batch, input_size), depth=7)
    assert set(paired) == {(False, *[True] * 6)}


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        ({"inject_every": 2}, (1, 2, 3)),
        ({"bias": False}, (1, 2, 3)),
        ({"bias": False, "inject_every": 3}, (1, 2, 3)),
        ({"weight_norm": True, "output_size": 2}, (1, 2, 3)),
        ({"staggered": (2, 1, 3)}, (1, 2, 3)),
        ({"dilation": (1, 2)}, (2,)),
        ({"kernel_size": 3}, ()),
        ({"groups": (2, 4)}, ()),
        ({"groups": (6,)}, ()),
        ({"groups": (6,), "kernel_size": 3}, ()),
    ],
    ids=str,
)
def test_equals_specification_with_all_options(paired, options, layers):
    for input_size in (2, 20):
        assert_as_specified(make(input_size, **options), torch.randn(7, 2, input_size))
    assert set(paired) == {tuple(i in layers for i in range(4))}


@pytest.mark.parametrize("input_size", [2, 20])
@pytest.mark.parametrize("call", [{}, {"tail": 1}, {"tail": 4}, {"lengths": [9, 5]}, {"lengths": [9, 5], "tail": 3}])
def test_states_masks_and_tails_are_as_without_pairs(monkeypatch, paired, call, input_size):
    net = make(input_size, hidden_dropout=0.4, aux_every=2)
    mask = net._mask(torch.zeros(9, 2, input_size))
    monkeypatch.setattr(net, "_mask", lambda x: mask)
    x, h, c = (torch.randn(*shape, requires_grad=True) for shape in ((9, 2, input_size), (2, 6), (2, 6)))
    tensors, found = (x, h, c, *net.parameters()), []
    for least in (1, 10**6):
        monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED", least)
        net._calls.clear()
        for state in ((h, c), net(x)[1]):
            y, after, aux = net(x, state, aux=True, **call)
            outputs = [y, aux] if after is None else [y, aux, after.h, after.c]
            found.append([*outputs, *(g for output in outputs for g in gradients(output, *tensors))])
    assert_close(found[0], found[2], 1e-12)
    assert_close(found[1], found[3], 1e-12)
    assert any(any(layers) for layers in paired)
    assert not any(paired[-1])


@pytest.mark.parametrize("frozen", ["weight_hidden", "weight_input", "bias"])
def test_frozen_weights_leave_the_other_gradients_alone(paired, frozen):
    net, x = make(), torch.randn(7, 2, 2, requires_grad=True)
    others = [parameter for name, parameter in net.kernel.named_parameters() if name != frozen]
    expected = gradients(net(x)[0], x, *others)
    net.kernel.get_parameter(frozen).requires_grad_(False)
    assert_close(gradients(net(x)[0], x, *others, retain=False), expected, 1e-14)
    assert all(any(layers) for layers in paired)


def test_no_step_sees_the_future_nor_more_of_the_past(paired):
    net, x = make(), torch.randn(12, 1, 2)
    expected = net(x)[0]
    for step in range(12):
        changed = x.clone()
        changed[step] += 1
        differs = net(changed)[0].ne(expected).any(-1).any(-1)
        assert differs.nonzero().flatten().tolist() == [*range(step, min(step + net.receptive_field, 12))]
    assert all(any(layers) for layers in paired)


def test_single_precision_is_hardly_less_exact(monkeypatch, paired):
    net, x = TrellisNet(20, 64, 20, dtype=torch.float32), torch.randn(30, 4, 20, dtype=torch.float32)

    def run(net, x):
        y, _ = net(x)
        return [y, *torch.autograd.grad(y.square().sum(), list(net.parameters()))]

    exact, errors = run(copy.deepcopy(net).double(), x.double()), []
    for least in (1, 10**6):
        monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED", least)
        net._calls.clear()
        errors.append([((a - b).norm() / b.norm()).item() for a, b in zip(run(net, x), exact, strict=True)])
    for in_pairs, alone in zip(*errors, strict=True):
        assert in_pairs < min(2e-6, 2 * alone)
    assert [any(layers) for layers in paired] == [True, True, False]


def test_small_and_narrow_layers_are_not_paired(monkeypatch, paired):
    net, x = TrellisNet(2, 6, 3), torch.randn(9, 2, 2)
    monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED", 9 * 2 * 6)
    net(x)
    net(x[:-1])
    assert paired == [(False, True, True), (False, False, False)]
    monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED_WIDTH", 7)
    net._calls.clear()
    net(x)
    assert not any(paired[-1])
