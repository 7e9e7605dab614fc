"""The walk down computes what is asked for, and nothing else."""

import pytest
import torch

from reference import assert_close, gradients
from trellisnet import TrellisNet
from trellisnet.core.engine.products import ProductGradients
from trellisnet.core.engine.restore import Restorer

FROZEN = {
    "hidden kernel": ("weight_hidden", "weight_past", "weight_below_1"),
    "first block": ("weight_hidden", "weight_past_0"),
    "last block": ("weight_hidden", "weight_past_1", "weight_below_1"),
    "input kernel": ("weight_input", "weight_below_0"),
    "input kernel and biases": ("weight_input", "weight_below_0", "bias"),
    "biases": ("bias",),
    "all": ("",),
}


@pytest.mark.parametrize("channels", [2, 20])  # up to 16 of all taps, an input is multiplied in every layer
@pytest.mark.parametrize("options", [{}, {"groups": (2, 3)}, {"memory": "recompute"}, {"cell": "tanh"}], ids=str)
@pytest.mark.parametrize("frozen", FROZEN)
def test_frozen_parameters_leave_the_other_gradients_alone(monkeypatch, frozen, options, channels):
    net = TrellisNet(channels, 5, 4, **options)
    x = torch.randn(7, 2, channels, requires_grad=True)
    h = torch.randn(2, 5, requires_grad=True)
    c = torch.randn(2, 5, requires_grad=True) if net.cell.has_memory else None
    given = [h] if c is None else [h, c]
    parameters = dict(net.kernel.named_parameters())
    left = [p for name, p in parameters.items() if not name.startswith(FROZEN[frozen])]
    assert len(left) < len(parameters)

    def run(*tensors):  # with a state every level has a context, and a tail of 4 reads the oldest of it
        calls = [({"tail": 4}, (h, c), given), ({}, (h, c), given), ({"tail": 2}, None, []), ({}, None, [])]
        for options, state, known in calls:
            yield gradients(net(x, state, **options)[0], *tensors, *known, retain=False)

    expected = list(run(x, *left))
    assert all(grad.abs().max() > 0 for grads in expected for grad in grads)
    for parameter in parameters.values():
        parameter.requires_grad_(any(parameter is other for other in left))
    for found, known in zip(run(x, *left), expected, strict=True):
        assert_close(found, known, 1e-14)
    x.requires_grad_(False)
    if left:
        for found, known in zip(run(*left), expected, strict=True):
            assert_close(found, known[1:], 1e-14)


def test_hidden_states_are_recomputed_for_weights_only(monkeypatch):
    asked, hidden = [], Restorer.hidden
    monkeypatch.setattr(Restorer, "hidden", lambda self, level: asked.append(level) or hidden(self, level))
    net, x = TrellisNet(2, 5, 4), torch.randn(7, 2, 2, requires_grad=True)
    net(x)[0].sum().backward()
    assert asked == [3, 2, 1, 0]
    net.kernel.weight_hidden.requires_grad_(False)
    net(x)[0].sum().backward()
    assert asked == [3, 2, 1, 0]


@pytest.mark.parametrize("channels", [2, 20])
def test_frozen_input_weights_get_no_products(monkeypatch, channels):
    made, make = [], ProductGradients.__init__
    monkeypatch.setattr(ProductGradients, "__init__", lambda self, *args: made.append(self) or make(self, *args))
    net, x = TrellisNet(channels, 5, 4), torch.randn(7, 2, channels, requires_grad=True)
    net.requires_grad_(False)
    net(x)[0].sum().backward()
    net.kernel.weight_hidden.requires_grad_(True)
    net(x.detach())[0].sum().backward()
    assert len(made) == 2
    for found in made:
        assert found.input_weight is None
        assert found.biases == [None]
    assert made[1].injected == made[1].gathered == []
