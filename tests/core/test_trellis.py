"""The module against the specification: outputs and all gradients, in float64."""

import copy
import io
from itertools import product

import pytest
import torch

from reference import assert_as_specified, assert_close, gradients, make, naive, naive_output
from trellisnet import Cell, TrellisNet
from trellisnet.core.forms import plan_call
from trellisnet.core.naive import Left


class Leaky(Cell):
    """A cell of the user's own, without a gradient of its own."""

    gates, has_memory = 2, True

    def __call__(self, pre, memory):
        candidate, gate = pre.unbind(-2)
        state = torch.lerp(memory, candidate.tanh(), gate.sigmoid())
        return state * 2, state


CELLS = ["tanh", "relu", "lstm", "gru", "highway", "nas", Leaky()]
OPTIONS = {
    "plain": {},
    "recompute": {"memory": "recompute"},
    "kernel 3": {"kernel_size": 3},
    "dilations": {"dilation": (1, 2, 4)},
    "dilation beyond T": {"dilation": (2, 64)},
    "kernel 4, dilated": {"kernel_size": 4, "dilation": (1, 3), "memory": "recompute"},
    "some injected": {"inject_every": 2},
    "no bias": {"bias": False},
    "no bias, some injected": {"bias": False, "inject_every": 3},
    "weight norm": {"weight_norm": True},
    "output": {"output_size": 3},
    "groups": {"groups": (2, 1, 3), "output_size": 3},
    "one group": {"groups": (6,)},
    "groups, recompute": {"groups": (2, 1, 3), "kernel_size": 3, "dilation": (1, 2), "memory": "recompute"},
    "groups, no bias": {"groups": (4, 2), "bias": False, "weight_norm": True},
    "staggered": {"staggered": (2, 1, 3)},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("cell", CELLS, ids=lambda c: c if isinstance(c, str) else "own")
def test_equals_specification(cell, options):
    for input_size in (2, 20):  # narrow and wide
        assert_as_specified(make(input_size, cell=cell, **options), torch.randn(7, 3, input_size))


@pytest.mark.parametrize("input_size", [1, 9], ids=["narrow", "wide"])
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (1, 3), (2, 1), (5, 1), (13, 2)])
def test_equals_specification_at_odd_sizes(steps, batch, input_size):
    assert_as_specified(make(input_size, dilation=(1, 2)), torch.randn(steps, batch, input_size))


@pytest.mark.parametrize("cell", CELLS, ids=lambda c: c if isinstance(c, str) else "own")
@pytest.mark.parametrize("depth", [1, 2, 9])
def test_any_depth_with_the_same_weights(cell, depth):
    assert_as_specified(make(cell=cell, dilation=(1, 2)), torch.randn(6, 2, 2), depth=depth)


@pytest.mark.parametrize("cell", ["tanh", "relu", "lstm", "gru"])
@pytest.mark.parametrize("tiles", [1, 100])
@pytest.mark.parametrize("options", [{}, {"groups": (2, 4)}, {"kernel_size": 3, "dilation": (2, 3)}])
def test_tiles_and_kept_levels_change_nothing(monkeypatch, options, tiles, cell):
    monkeypatch.setattr("trellisnet.core.engine.tiles.TILE", tiles)
    monkeypatch.setattr("trellisnet.core.engine.tiles.TILE_ROWS", 1)
    for memory, input_size in product(("store", "recompute"), (2, 20)):  # narrow and wide
        net = make(input_size, cell=cell, memory=memory, **options)
        assert_as_specified(net, torch.randn(9, 2, input_size), depth=7)


def test_left_context_reaches_every_level_with_gradients():
    net = make(kernel_size=3, dilation=(1, 2))
    x = torch.randn(9, 2, 2, requires_grad=True)
    hidden, memory = naive(net, x)
    first, state = net(x[:5])
    for level in range(1, 5):
        rows = slice(sum(state.spans[:level]), sum(state.spans[: level + 1]))
        assert_close(state.h[rows], hidden[level, 5 - state.spans[level] : 5])
        assert_close(state.c[rows], memory[level, 5 - state.spans[level] : 5])
    second, _ = net(x[5:], state)
    tensors = (x, *net.parameters())
    whole = gradients(torch.cat([first, second]), *tensors)
    assert_close(whole, gradients(hidden[-1], *tensors))


def test_pair_as_state_with_gradients():
    net = make(dilation=(1, 3))
    x = torch.randn(5, 2, 2)
    h, c = torch.randn(2, 2, 6, requires_grad=True).unbind()
    left = Left(hidden={i: h.expand(3, -1, -1) for i in range(4)}, memory={i: c.expand(3, -1, -1) for i in range(4)})
    expected = naive_output(net, x, left=left)
    y, _ = net(x, (h, c))
    assert_close(y, expected)
    assert_close(gradients(y, h, c), gradients(expected, h, c))


def test_hidden_dropout_is_one_mask_per_sequence(monkeypatch):
    net = make(cell="gru", hidden_dropout=0.5)
    x = torch.randn(5, 3, 2)
    mask = net._mask(x)
    assert mask.shape == (3, 6)
    assert set(mask.unique().tolist()) == {0.0, 2.0}
    monkeypatch.setattr(net, "_mask", lambda x: mask)
    x.requires_grad_()
    expected = naive_output(net, x, mask=mask)
    for memory in ("store", "recompute"):
        net.memory = memory
        y, _ = net(x)
        assert_close(y, expected)
        tensors = (x, *net.parameters())
        assert_close(gradients(y, *tensors), gradients(expected, *tensors))
    net.eval()
    monkeypatch.undo()
    assert net._mask(x) is None


def test_aux_outputs_are_those_of_every_nth_level():
    net = make(aux_every=3, output_size=2)
    x = torch.randn(6, 2, 2, requires_grad=True)
    hidden, _ = naive(net, x, depth=7)
    y, _, aux = net(x, aux=True, depth=7)
    assert_close(aux, hidden[[3, 6]][..., -2:])
    assert_close(y, hidden[7][..., -2:])
    assert_close(gradients(aux, x), gradients(hidden[[3, 6]][..., -2:], x))


def test_aux_of_a_depth_without_aux_levels_is_empty():
    net = make(aux_every=3)
    y, _, aux = net(torch.randn(5, 2, 2), aux=True, depth=2)
    assert aux.shape == (0, *y.shape)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dilation": (1, 2, 5)},
        {"kernel_size": 4},
        {"output_size": 2},
        {"inject_every": 3},
        {"groups": (2, 1, 3), "output_size": 3},
        {"groups": (2, 1, 3), "output_size": 4, "dilation": (3, 1, 2)},
        {"groups": (2, 1, 3)},
        {"hidden_taps": 1, "kernel_size": 3},
        {"hidden_taps": 0},
        *(
            {"cell": "coupled", "hidden_taps": 0, "kernel_size": 4, "dilation": dilation, "inject_every": every}
            for dilation in (1, (1, 2, 5), (1, 1, 9, 1))
            for every in (1, 3)
        ),
    ],
    ids=str,
)
def test_receptive_field_by_perturbation(options):
    net = make(**{"cell": "tanh", **options})
    steps = net.receptive_field + 5
    x = torch.randn(steps, 1, 2, requires_grad=True)
    y, _ = net(x, tail=1)
    (gradient,) = gradients(y, x)
    touched = gradient.abs().sum((1, 2)).nonzero().squeeze(1)
    assert steps - touched.min().item() == net.receptive_field


@pytest.mark.parametrize("options", [{}, {"groups": (2, 4)}], ids=str)
def test_weight_norm_survives_copies_and_files_after_a_step(options):
    net = make(weight_norm=True, **options)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(5, 2, 2)
    net(x)[0].square().mean().backward()
    optimizer.step()
    y = net(x)[0]
    assert_close(copy.deepcopy(net)(x)[0], y, 0.0)
    buffer = io.BytesIO()
    torch.save(net.state_dict(), buffer)
    buffer.seek(0)
    other = make(weight_norm=True, **options)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    assert_close(other(x)[0], y, 0.0)
    net.reset_parameters()
    assert (net(x)[0] - y).abs().max() > 1e-3


def test_nan_in_the_input_stays_nan_and_stays_in_its_sequence():
    for cell in ("tanh", "relu", "lstm", "gru"):
        x = torch.randn(6, 2, 2)
        x[3, 0] = float("nan")
        y, _ = make(cell=cell)(x)
        assert y[3:, 0].isnan().any(-1).all()
        assert y[:3].isfinite().all()
        assert y[:, 1].isfinite().all()


def test_paper_initialisation_and_default():
    paper = TrellisNet(50, 100, 2, init="paper")
    for parameter in paper.parameters():
        assert 0.008 < parameter.std().item() < 0.012
    net = TrellisNet(50, 100, 2)
    assert 0.19 < net.kernel.weight_hidden.abs().max().item() <= 0.2  # 2 / sqrt(H)
    assert TrellisNet(50, 100, 2, cell="relu").kernel.weight_hidden.abs().max().item() <= 0.1
    assert net.kernel.bias.view(4, 100).mean(1).tolist() == [0, 1, 0, 0]


def test_meta_device_and_dtype():
    net = TrellisNet(3, 8, 4, device="meta", dtype=torch.float32, weight_norm=True)
    assert all(p.is_meta and p.dtype == torch.float32 for p in net.parameters())


CHANGES = {
    "memory": "recompute",
    "inject_every": 2,
    "num_layers": 3,
    "output_size": 2,
    "hidden_dropout": 0.5,
    "weight_dropout": 0.5,
    "drop_all_taps": True,
    "aux_every": 2,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_attribute_takes_effect_at_the_next_call(name):
    options = {"weight_dropout": 0.3 if name == "drop_all_taps" else 0.0, "aux_every": 1}
    net, x = make(**options), torch.randn(5, 3, 2)
    again = TrellisNet(2, 6, **{"num_layers": 4, **options, name: CHANGES[name]})
    again.load_state_dict(net.state_dict())
    net(x, aux=True)
    setattr(net, name, CHANGES[name])
    assert getattr(net.options, name) == CHANGES[name]
    kept = []
    for each in (net, again):
        torch.manual_seed(0)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, sizes=sizes: sizes.append(t.numel()) or t, lambda t: t):
            y, state, aux = each(x, aux=True)
        kept.append(((y, aux, state.h), sum(sizes)))
    assert_close(kept[0][0], kept[1][0], 0.0)
    assert kept[0][1] == kept[1][1]


def test_calls_of_one_form_are_planned_once_and_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr("trellisnet.core.forms.MOST_CALLS", 4)
    net, x = make(), torch.randn(9, 2, 2)
    planned = []
    monkeypatch.setattr("trellisnet.core.forms.plan_call", lambda *args: planned.append(1) or plan_call(*args))
    for _ in range(3):
        net(x, tail=2)
        net(x, lengths=[9, 5])
    assert len(planned) == 2
    expected = net(x)[0]
    for length in range(1, 10):
        assert_close(net(x[:length])[0], expected[:length], 1e-12)
        assert len(net._calls) <= 4
    assert not copy.deepcopy(net)._calls


@pytest.mark.parametrize(
    "options", [{}, {"weight_norm": True}, {"groups": (2, 4)}, {"groups": (6,), "weight_norm": True}]
)
def test_a_net_for_inference_is_equal_and_has_its_norm_computed(options):
    net, x = make(hidden_dropout=0.3, weight_dropout=0.3, **options), torch.randn(5, 3, 2)
    fixed = net.for_inference()
    if options == {"weight_norm": True}:
        assert not fixed.training
        assert not fixed.kernel.weight_norm
        assert net.training
    else:
        assert fixed is net
    assert_close(fixed.eval()(x)[0], net.eval()(x)[0], 1e-12)


def test_the_scale_of_the_input_follows_the_initialisation():
    assert TrellisNet(2, 6, 3).input_scale == TrellisNet(2, 6, 3, cell="gru").input_scale == 6.0
    assert TrellisNet(2, 6, 3, init="paper").input_scale is None
    assert TrellisNet(2, 6, 3, cell="tanh").input_scale is None
