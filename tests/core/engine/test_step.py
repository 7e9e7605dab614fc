"""Streams: the buffers on which single steps are computed."""

import threading

import torch

from reference import assert_close
from trellisnet import TrellisNet
from trellisnet.core.engine import step


@torch.no_grad()
def test_buffers_are_made_once_per_form_of_call(monkeypatch):
    made, original = [], step._Buffers
    monkeypatch.setattr(step, "_Buffers", lambda call: made.append(call.batch) or original(call))
    net, x = TrellisNet(3, 6, 4), torch.randn(5, 3, 3)
    expected, states = net(x)[0], dict.fromkeys((1, 2, 3))
    for t in range(5):
        for batch in states:
            y, states[batch] = net(x[t : t + 1, :batch], states[batch])
            assert_close(y[0], expected[t, :batch], 1e-12)
    assert made == [1, 2, 3, 1, 2, 3]  # a step without a state has another form


def test_threads_do_not_share_buffers():
    net, x = TrellisNet(3, 16, 6), torch.randn(100, 8, 1, 3)
    with torch.no_grad():
        expected = [net(sequence)[0] for sequence in x.unbind(1)]
    found = {}

    @torch.no_grad()
    def stream(number):
        state, outputs = None, []
        for each in x[:, number]:
            y, state = net(each[None], state)
            outputs.append(y)
        found[number] = torch.cat(outputs)

    threads = [threading.Thread(target=stream, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(8):
        assert_close(found[number], expected[number], 1e-12)
