"""What a call keeps for its backward pass."""

import threading

import pytest
import torch

from reference import assert_close, gradients
from trellisnet import TrellisNet
from trellisnet.core.engine.storage import Workspace, give_buffer, take_buffer


def test_recompute_keeps_less():
    kept = {}
    for memory in ("store", "recompute"):
        net = TrellisNet(3, 8, 10, memory=memory)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, sizes=sizes: sizes.append(t.numel()) or t, lambda t: t):
            net(torch.randn(20, 2, 3))
        kept[memory] = sum(sizes)
    assert kept["recompute"] < 0.25 * kept["store"]


def test_to_store_is_to_keep_little_more_than_the_gates():
    net, sizes = TrellisNet(20, 8, 16), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        net(torch.randn(100, 2, 20))
    cells = 16 * 100 * 2 * 8
    assert sum(sizes) < 4.8 * cells  # four gates, memories of every fourth level, input and weights


@pytest.mark.parametrize("memory", ["store", "recompute"])
@pytest.mark.parametrize("call", [{}, {"tail": 3}, {"lengths": [9, 4]}], ids=str)
def test_retained_graph_gives_the_same_until_it_is_used_up(monkeypatch, call, memory):
    net = TrellisNet(3, 5, 20, dilation=(1, 2, 1), memory=memory, hidden_dropout=0.2)
    x = torch.randn(9, 2, 3, requires_grad=True)
    y, *_ = net(x, net(x)[1], **call)
    first, second, last = (gradients(y, x, *net.parameters(), retain=retain) for retain in (True, True, False))
    assert_close(first, second, 0.0)
    assert_close(first, last, 1e-12)
    with pytest.raises(RuntimeError, match="second time"):
        gradients(y, x)


def test_without_gradients_nothing_is_kept(monkeypatch):
    kept = []
    monkeypatch.setattr("trellisnet.core.engine.take_buffer", lambda *_: kept.append(1))
    net = TrellisNet(3, 5, 6)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            net(torch.randn(9, 2, 3))
    assert not kept


def test_calls_that_wait_for_their_backward_pass_do_not_share_memory():
    nets = [TrellisNet(3, 8, 6), TrellisNet(3, 8, 6, memory="recompute"), TrellisNet(3, 8, 6)]
    x = torch.randn(9, 2, 3)
    expected = [gradients(net(x)[0], *net.parameters(), retain=False) for net in nets]
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        outputs = [net(x)[0] for net in nets]
        nets[0](torch.randn(5, 2, 3))  # its graph is dropped
        for n in order:
            assert_close(gradients(outputs[n], *nets[n].parameters(), retain=False), expected[n], 1e-14)


def test_the_buffer_is_used_again_unless_it_is_far_too_large(monkeypatch):
    monkeypatch.setattr("trellisnet.core.engine.storage._local", threading.local())

    def take(size, dtype=torch.float32):
        return take_buffer("kept", size, torch.empty(0, dtype=dtype))

    first = take(100)
    give_buffer("kept", first)
    assert take(60) is first
    give_buffer("kept", first)
    assert take(60, torch.float64) is not first
    give_buffer("kept", first)
    assert len(take(200)) == 200
    give_buffer("kept", first)
    assert len(take(10)) == 10
    give_buffer("kept", torch.empty(10))
    give_buffer("kept", first)  # the larger one stays
    give_buffer("kept", torch.empty(20))
    assert take(100) is first


@pytest.mark.parametrize("memory", ["store", "recompute"])
@pytest.mark.parametrize("options", [{}, {"cell": "tanh"}, {"groups": (2, 6)}, {"input_size": 2}], ids=str)
@pytest.mark.parametrize("call", [{}, {"tail": 3}, {"lengths": [9, 4]}], ids=str)
def test_the_workspace_is_all_in_the_buffer(monkeypatch, call, options, memory):
    monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED", 1)
    monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED_WIDTH", 1)
    spaces, make = [], Workspace.__init__
    monkeypatch.setattr(
        Workspace, "__init__", lambda self, *args, **way: spaces.append(self) or make(self, *args, **way)
    )
    options = {"input_size": 20, **options}
    net, x = (
        TrellisNet(hidden_size=8, num_layers=12, memory=memory, **options),
        torch.randn(9, 2, options["input_size"]),
    )
    state = net(x)[1].repackage()
    for given in (None, state):
        spaces.clear()
        monkeypatch.setattr("trellisnet.core.engine.storage._local", threading.local())  # no spare buffers
        net(x, given, **call)[0].sum().backward()
        used = [space for space in spaces if not space.free.is_meta]
        assert len(used) == 2
        assert all(space.most <= len(space.free) for space in used)
        assert any(space.most == len(space.free) for space in used)


def test_evaluation_frees_the_buffers(monkeypatch):
    monkeypatch.setattr("trellisnet.core.engine.storage._local", local := threading.local())
    net, x = TrellisNet(3, 8, 6), torch.randn(9, 2, 3)
    net(x)[0].sum().backward()
    assert set(local.__dict__) == {"kept", "workspace"}
    with torch.no_grad():
        net(x)
    assert not local.__dict__


def test_buffer_that_a_hook_has_replaced_is_not_written(monkeypatch):
    net, x = TrellisNet(3, 8, 12), torch.randn(9, 2, 3)
    expected = gradients(net(x)[0], *net.parameters(), retain=False)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: packed.append(t.clone()) or len(packed) - 1, packed.__getitem__
    ):
        y, _ = net(x)
    before = [tensor.clone() for tensor in packed]
    assert_close(gradients(y, *net.parameters(), retain=False), expected, 1e-12)
    assert all(torch.equal(*pair) for pair in zip(packed, before, strict=True))


def test_second_attempt_after_a_failure_is_refused():
    net, x = TrellisNet(3, 8, 7), torch.randn(6, 2, 3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        y, _ = net(x)
    node = y.grad_fn
    while "_InPlace" not in node.name():
        node = node.next_functions[0][0]

    def fail(*_):
        raise KeyError("outside")

    hook = node.register_hook(fail)
    with pytest.raises(KeyError, match="outside"):
        y.sum().backward()
    hook.remove()
    with pytest.raises(RuntimeError, match="used up"):
        y.sum().backward()
