"""The desks on which steps of streams are computed."""

import threading

import torch

from reference import assert_close
from trellisnet import TrellisNet
from trellisnet.core.engine import step


@torch.no_grad()
def test_the_oldest_desk_makes_way_and_streams_go_on(monkeypatch):
    monkeypatch.setattr(step, "_local", threading.local())
    net, x = TrellisNet(3, 6, 4), torch.randn(3, 20, 3)
    expected = net(x)[0]
    states = dict.fromkeys(range(1, 21))
    for t in range(3):
        for batch in states:  # more batch sizes than there are desks
            y, states[batch] = net(x[t : t + 1, :batch], states[batch])
            assert_close(y[0], expected[t, :batch], 1e-12)
    assert len(step._local.desks) == 16
    newest = list(step._local.desks)[-1]
    net(x[:1, :20], states[20])
    assert list(step._local.desks)[-1] == newest  # still there, so not made again
