"""What a call keeps for its backward pass."""

import threading

import pytest
import torch

from reference import assert_close, gradients
from trellisnet import TrellisNet
from trellisnet.core.batch import read_batch
from trellisnet.core.engine.call import Inputs
from trellisnet.core.engine.storage import Keep, drop_buffer, give_buffer, take_buffer


def test_recompute_keeps_less():
    kept = {}
    for memory in ("store", "recompute"):
        net = TrellisNet(3, 8, 10, memory=memory)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, sizes=sizes: sizes.append(t.numel()) or t, lambda t: t):
            net(torch.randn(20, 2, 3))
        kept[memory] = sum(sizes)
    assert kept["recompute"] < 0.25 * kept["store"]


def test_wide_nets_keep_little_more_than_their_gates(monkeypatch):
    monkeypatch.setattr("trellisnet.core.engine.storage.WIDE", 1)
    net, sizes = TrellisNet(20, 8, 16), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        net(torch.randn(100, 2, 20))
    cells = 16 * 100 * 2 * 8
    # 4 gates of all layers but the first, two memories, two levels to walk through, the input with its product, weights
    assert sum(sizes) < 4.8 * cells


@pytest.mark.parametrize("tail", [None, 5, 30])
@pytest.mark.parametrize("depth", [8, 13, 20, 27, 40, 58, 99, 130])
def test_what_is_made_again_finds_room_in_the_buffer(depth, tail):
    net = TrellisNet(20, 256, depth, device="meta")
    batch = read_batch(torch.empty(30, 4, 20, device="meta"), None, False, 20)
    call, _ = net._describe(batch, None, tail, None, False)
    keep = Keep(call, 4)
    assert keep.extra <= 0.03 * keep.whole_size  # above the topmost level there is no room for anything
    assert len(keep.levels) <= 6


@pytest.mark.parametrize(("call", "products"), [({"tail": 3}, 1), ({}, 2)], ids=str)
def test_only_where_all_steps_are_wanted_the_first_layer_is_made_again(monkeypatch, call, products):
    monkeypatch.setattr("trellisnet.core.engine.storage.WIDE", 1)
    multiplied, product = [], Inputs.product
    monkeypatch.setattr(Inputs, "product", lambda self, *args, **kw: multiplied.append(1) or product(self, *args, **kw))
    TrellisNet(20, 8, 6)(torch.randn(9, 2, 20), **call)[0].sum().backward()
    assert len(multiplied) == products


@pytest.mark.parametrize("wide", [1, 100])
@pytest.mark.parametrize("memory", ["store", "recompute"])
@pytest.mark.parametrize("call", [{}, {"tail": 3}, {"lengths": [9, 4]}], ids=str)
def test_retained_graph_gives_the_same_until_it_is_used_up(monkeypatch, call, memory, wide):
    monkeypatch.setattr("trellisnet.core.engine.storage.WIDE", wide)
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


def test_calls_that_wait_for_their_way_down_do_not_share_memory():
    nets = [TrellisNet(3, 8, 6), TrellisNet(3, 8, 6, memory="recompute"), TrellisNet(3, 8, 6)]
    x = torch.randn(9, 2, 3)
    expected = [gradients(net(x)[0], *net.parameters(), retain=False) for net in nets]
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        outputs = [net(x)[0] for net in nets]
        nets[0](torch.randn(5, 2, 3))  # its graph is dropped
        for n in order:
            assert_close(gradients(outputs[n], *nets[n].parameters(), retain=False), expected[n], 1e-14)


def test_buffer_is_used_again_unless_it_is_far_too_large(monkeypatch):
    monkeypatch.setattr("trellisnet.core.engine.storage._local", threading.local())
    like = torch.empty(0, dtype=torch.float32)
    first = take_buffer(100, like)
    give_buffer(first)
    assert take_buffer(60, like) is first
    give_buffer(first)
    assert take_buffer(60, like.double()) is not first
    give_buffer(first)
    assert len(take_buffer(200, like)) == 200
    give_buffer(first)
    assert len(take_buffer(10, like)) == 10
    give_buffer(torch.empty(10))
    give_buffer(first)  # the larger one stays
    give_buffer(torch.empty(20))
    assert take_buffer(100, like) is first


def test_evaluation_lets_go_of_the_buffer(monkeypatch):
    monkeypatch.setattr("trellisnet.core.engine.storage._local", threading.local())
    net, x = TrellisNet(3, 8, 6), torch.randn(9, 2, 3)
    net(x)[0].sum().backward()
    spare = drop_buffer()
    assert spare is not None
    give_buffer(spare)
    with torch.no_grad():
        net(x)
    assert drop_buffer() is None


def test_buffer_that_a_hook_has_replaced_is_not_written(monkeypatch):
    monkeypatch.setattr("trellisnet.core.engine.storage.WIDE", 1)
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
    while "_Trellis" not in node.name():
        node = node.next_functions[0][0]

    def fail(*_):
        raise KeyError("outside")

    hook = node.register_hook(fail)
    with pytest.raises(KeyError, match="outside"):
        y.sum().backward()
    hook.remove()
    with pytest.raises(RuntimeError, match="used up"):
        y.sum().backward()
