"""Kernels with their taps side by side."""

import pytest
import torch

from reference import assert_close, gradients, naive_output
from trellisnet import TrellisNet
from trellisnet.core.joined import JoinedKernel


@pytest.mark.parametrize("collected", [1, 17, 45, 100])
@pytest.mark.parametrize("call", [{}, {"tail": 3}], ids=str)
def test_gradients_of_several_layers_at_once(monkeypatch, call, collected):
    monkeypatch.setattr("trellisnet.core.keep.WIDE", 1)
    monkeypatch.setattr("trellisnet.core.joined.COLLECTED", collected)
    settle, rows = JoinedKernel.settle, []
    monkeypatch.setattr(
        JoinedKernel, "settle", lambda k: (rows.append(0 if k.grad_gates is None else len(k.grad_gates)), settle(k))
    )
    for options in ({"hidden_size": 8}, {"hidden_size": 8, "dilation": (1, 2)}, {"groups": (4, 8), "hidden_size": 12}):
        net = TrellisNet(2, num_layers=9, dtype=torch.float64, **options)
        x = torch.randn(12, 2, 2, dtype=torch.float64, requires_grad=True)
        expected = naive_output(net, x)[-call.get("tail", 12) :]
        for retain in (True, False):
            found = gradients(net(x, **call)[0], x, *net.parameters(), retain=retain)
            assert_close(found, gradients(expected, x, *net.parameters()), 1e-10)
    if collected == 100:
        assert max(rows) > 2 * 12  # more than a layer has
