"""The walk down computes what is asked for, and nothing else."""

import pytest
import torch

from reference import assert_close, gradients
from trellisnet import TrellisNet
from trellisnet.core import keep
from trellisnet.core.forward import Grid

FROZEN = {
    "hidden kernel": ("weight_hidden", "weight_past", "weight_below_1"),
    "input kernel": ("weight_input", "weight_below_0"),
    "input kernel and biases": ("weight_input", "weight_below_0", "bias"),
    "all": ("",),
}


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("channels", [2, 20])  # up to 16 of all taps, an input is multiplied in every layer
@pytest.mark.parametrize("options", [{}, {"groups": (2, 3)}, {"memory": "recompute"}], ids=str)
@pytest.mark.parametrize("frozen", FROZEN)
def test_frozen_parameters_leave_the_other_gradients_alone(monkeypatch, frozen, options, channels, wide):
    monkeypatch.setattr(keep, "WIDE", 1 if wide else 1000)
    net = TrellisNet(channels, 5, 4, **options)
    x = torch.randn(7, 2, channels, requires_grad=True)
    h, c = (torch.randn(2, 5, requires_grad=True) for _ in range(2))

    def run(*tensors):
        return gradients(net(x, (h, c), tail=3)[0], *tensors)

    parameters = dict(net.kernel.named_parameters())
    left = [p for name, p in parameters.items() if not name.startswith(FROZEN[frozen])]
    assert len(left) < len(parameters)
    expected = run(x, h, c, *left)
    for parameter in parameters.values():
        parameter.requires_grad_(any(parameter is other for other in left))
    assert_close(run(x, h, c, *left), expected, 1e-14)
    if left:
        x.requires_grad_(False)
        assert_close(run(h, c, *left), expected[1:], 1e-14)


def test_hidden_states_are_made_again_for_weights_only(monkeypatch):
    monkeypatch.setattr(keep, "WIDE", 1)
    revealed, reveal = [], Grid.reveal
    monkeypatch.setattr(Grid, "reveal", lambda grid, level: revealed.append(level) or reveal(grid, level))
    net, x = TrellisNet(2, 5, 4), torch.randn(7, 2, 2, requires_grad=True)
    net(x)[0].sum().backward()
    assert revealed == [3, 2, 1, 0]
    net.kernel.weight_hidden.requires_grad_(False)
    net(x)[0].sum().backward()
    assert revealed == [3, 2, 1, 0]
