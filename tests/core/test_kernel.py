"""The tied weights: weight norm, DropConnect, initialisation, dense form."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from reference import assert_close, gradients, naive_output
from trellisnet import Cell, TrellisNet


def test_weight_norm_is_per_output_channel_over_all_taps():
    net = TrellisNet(3, 4, 2, kernel_size=3, weight_norm=True)
    for name in ("weight_input", "weight_hidden"):
        norm = net.kernel.get_submodule(f"parametrizations.{name}")
        assert norm.original0.shape == (1, 1, 16)
        with torch.no_grad():
            norm.original0.copy_(torch.rand(1, 1, 16) + 0.5)
        lengths = getattr(net.kernel, name).square().sum((0, 1)).sqrt()
        assert_close(lengths, norm.original0.flatten(), 1e-12)


@pytest.mark.parametrize("groups", [None, (1, 3)])
@pytest.mark.parametrize("all_taps", [False, True])
def test_weight_dropout_acts_once_per_call_and_on_the_older_taps(all_taps, groups):
    net = TrellisNet(3, 4, 3, kernel_size=3, weight_dropout=0.5, drop_all_taps=all_taps, groups=groups)
    net.eval()
    _, kept, _ = net.kernel.dense(net.weights())
    net.train()
    _, dropped, _ = net.kernel.dense(net.weights())
    changed = (dropped != kept).flatten(1).any(1).tolist()
    assert changed == [True, True, all_taps]
    nonzero = (kept != 0) & (dropped != 0) & (dropped != kept)
    assert_close(dropped[nonzero], 2 * kept[nonzero], 1e-12)
    x = torch.randn(5, 2, 3, requires_grad=True)
    torch.manual_seed(3)
    expected = naive_output(net, x)  # the same weights in every layer
    expected_gradients = gradients(expected, x, *net.parameters())
    torch.manual_seed(3)
    y, _ = net(x)
    assert_close(y, expected)
    assert_close(gradients(y, x, *net.parameters()), expected_gradients)
    assert (net(x)[0] - y).abs().max() > 1e-6


def test_weight_dropout_acts_on_the_direction_under_weight_norm():
    net = TrellisNet(3, 4, 3, weight_norm=True, weight_dropout=0.5)
    norm = net.kernel.get_submodule("parametrizations.weight_hidden")
    torch.manual_seed(5)
    weights = net.weights()
    torch.manual_seed(5)
    older, newest = norm.original1
    direction = torch.stack([F.dropout(older, 0.5), newest])
    expected = norm.original0 * direction / direction.square().sum((0, 1), keepdim=True).sqrt()
    assert_close(weights.hidden[0], expected.flatten(0, 1), 1e-12)


@pytest.mark.parametrize(
    "options", [{"weight_norm": True}, {"groups": (3, 1), "kernel_size": 3}, {"bias": False}], ids=str
)
def test_densify_is_equal_and_dense(options):
    net = TrellisNet(3, 4, 5, dilation=(1, 2), inject_every=2, output_size=2, **options)
    x = torch.randn(9, 2, 3)
    dense = net.densify()
    assert_close(dense(x)[0], net(x)[0], 1e-12)
    assert dense.kernel.weight_hidden.shape[1:] == (4, 16)
    assert dense.output_size == 2


@pytest.mark.parametrize("options", [{}, {"groups": (8, 8)}], ids=str)
def test_a_gate_that_loses_all_its_weights_is_zero_and_harmless(options):
    net = TrellisNet(1, 16, 4, weight_norm=True, weight_dropout=0.5, drop_all_taps=True, **options)
    empty = 0
    for _ in range(5):
        y, _ = net(torch.randn(5, 2, 1))
        empty += net.weights().input.eq(0).all(0).sum().item()
        y.square().sum().backward()
    assert empty
    assert all(p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("groups", [None, (2, 4)])
def test_densify_copies_the_parameters_of_a_users_cell(groups):
    class Scaled(nn.Module, Cell):
        gates, has_memory = 1, False

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(0.7))

        def forward(self, pre, memory):
            return (pre.squeeze(-2) * self.scale).tanh(), None

    net, x = TrellisNet(3, 6, 4, groups=groups, cell=Scaled()), torch.randn(5, 2, 3)
    expected = net(x)[0]
    dense = net.densify()
    assert_close(dense(x)[0], expected, 1e-12)
    nn.init.zeros_(dense.cell.scale)
    assert_close(net(x)[0], expected, 0.0)


def test_densify_does_not_bake_in_a_mask():
    net = TrellisNet(3, 6, 4, groups=(2, 4), weight_dropout=0.5)
    x = torch.randn(5, 2, 3)
    assert_close(net.densify().eval()(x)[0], net.eval()(x)[0], 1e-12)


def test_a_pass_materialises_the_kernel_once(monkeypatch):
    net = TrellisNet(3, 4, 20, weight_norm=True, weight_dropout=0.1)
    calls = []
    original = type(net.kernel).materialise
    monkeypatch.setattr(type(net.kernel), "materialise", lambda *args: calls.append(1) or original(*args))
    net(torch.randn(4, 2, 3))
    assert len(calls) == 1


@pytest.mark.parametrize("options", [{}, {"weight_norm": True}, {"groups": (2, 2), "cell": "tanh"}], ids=str)
def test_a_state_dict_of_the_first_version_is_read_in_its_own_layout(options):
    net, other = (TrellisNet(3, 4, 2, **options) for _ in range(2))
    saved = net.state_dict()
    for name, tensor in saved.items():
        saved[name] = tensor.transpose(1, 2).contiguous() if tensor.dim() == 3 else tensor
    saved._metadata["kernel"]["version"] = 1
    for assign in (False, True):
        other.load_state_dict(saved, assign=assign)
        assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))
        assert all(parameter.is_contiguous() for parameter in other.parameters())
