"""Parity with recorded runs of the authors' implementation (float64): outputs, states and every gradient."""

import pytest
import torch

from reference import FIXTURES, assert_close, fixture_net, load_fixture, naive
from trellisnet import TrellisState
from trellisnet.core.naive import Left


@pytest.mark.parametrize("memory", ["store", "recompute"])
@pytest.mark.parametrize("name", FIXTURES)
def test_core_gives_what_the_authors_code_gives(name, memory):
    settings, recorded = load_fixture(name)
    net, pairs = fixture_net(settings, recorded, batch_first=True, memory=memory)
    x = recorded["x"].clone().requires_grad_()
    y, state, *aux = net(x, TrellisState(recorded["h0"], recorded["c0"]), aux="aux" in recorded)
    assert_close(y, recorded["y"])
    assert_close(state.last, (recorded["h_n"], recorded["c_n"]))
    for levels in aux:
        assert_close(levels.transpose(0, 1), recorded["aux"])  # theirs are (B, layers, T, C)
    y.backward(recorded["y_grad"])
    assert_close(x.grad, recorded["x_grad"])
    for parameter, gradient in pairs:
        assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("name", FIXTURES)
def test_specification_gives_what_the_authors_code_gives(name):
    settings, recorded = load_fixture(name)
    net, pairs = fixture_net(settings, recorded)
    span = (settings["kernel_size"] - 1) * max(settings["dilation"])
    levels = range(settings["num_layers"])
    left = Left(
        hidden={i: recorded["h0"].expand(span, -1, -1) for i in levels},
        memory={i: recorded["c0"].expand(span, -1, -1) for i in levels},
    )
    x = recorded["x"].transpose(0, 1).clone().requires_grad_()
    hidden, memory = naive(net, x, left=left)
    y = hidden[-1][..., -settings["output_size"] :].transpose(0, 1)
    assert_close(y, recorded["y"])
    assert_close((hidden[-1, -1], memory[-1, -1]), (recorded["h_n"], recorded["c_n"]))
    y.backward(recorded["y_grad"])
    assert_close(x.grad.transpose(0, 1), recorded["x_grad"])
    for parameter, gradient in pairs:
        assert_close(parameter.grad, gradient)


def test_repackaged_state_is_the_authors_history():
    settings, recorded = load_fixture("core-history-aux")
    net, _ = fixture_net(settings, recorded)
    x = torch.randn(7, 2, settings["input_size"])
    _, state = net(x)
    h, c = state.last
    assert_close(net(x, state.repackage())[0], net(x, (h, c))[0], 0.0)
    assert not state.repackage().h.requires_grad
