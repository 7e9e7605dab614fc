"""Histories: chunked equals whole, step by step equals whole, and what can be done with a state."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import assert_close, gradients
from trellisnet import TrellisNet, TrellisState

NETS = [
    {"cell": "lstm"},
    {"cell": "gru", "kernel_size": 3},
    {"cell": "lstm", "dilation": (1, 2, 4)},
    {"cell": "tanh", "dilation": (3, 1), "inject_every": 2},
    {"cell": "lstm", "groups": (2, 3)},
    {"cell": "lstm", "kernel_size": 3, "dilation": (2, 5), "weight_norm": True},
]


def make(options):
    return TrellisNet(2, 5, num_layers=4, **options)


@settings(max_examples=60)
@given(data=st.data())
def test_any_chunking_equals_one_call(data):
    net = make(data.draw(st.sampled_from(NETS)))
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=6))
    start = data.draw(st.sampled_from(["nothing", "pair"]))
    with_graph = data.draw(st.booleans())  # without, single steps take the streaming path
    torch.manual_seed(data.draw(st.integers(0, 9)))
    x = torch.randn(sum(lengths), 2, 2)
    state = None
    if start == "pair":
        h, c = torch.randn(2, 2, 5).unbind()
        state = TrellisState(h, c if net.cell.has_memory else None)
    with torch.set_grad_enabled(with_graph):
        whole, end = net(x, state)
        outputs = []
        for chunk in x.split(lengths):
            y, state = net(chunk, state)
            outputs.append(y)
    assert_close(torch.cat(outputs), whole, 1e-12)
    assert state.spans[1:] == end.spans[1:]
    assert_close([state.x], [end.x], 1e-12)
    for a, b in ((state.h, end.h), (state.c, end.c)):  # rows of level 0, where one of the two has them, are zero
        rows = sum(end.spans[1:])
        for z in (a, b):
            assert z is None or z[:-rows].eq(0).all() or state.spans == end.spans
        assert_close(*(torch.zeros(1) if z is None else z[-rows:] for z in (a, b)), 1e-12)


@pytest.mark.parametrize("options", NETS, ids=str)
def test_step_by_step_equals_one_call(options):
    net = make(options)
    x = torch.randn(25, 3, 2)
    whole, _ = net(x)
    for grad in (True, False):
        state = None
        with torch.set_grad_enabled(grad):
            for t in range(len(x)):
                y, state = net(x[t : t + 1], state)
                assert_close(y[0], whole[t], 1e-12)


@pytest.mark.parametrize("options", NETS, ids=str)
def test_gradients_flow_through_the_state_until_detached(options):
    net = make(options)
    x = torch.randn(12, 2, 2, requires_grad=True)
    whole, _ = net(x)
    _, state = net(x[:7])
    y, _ = net(x[7:], state)
    tensors = (x, *net.parameters())
    assert_close(gradients(y, *tensors), gradients(whole[7:], *tensors))
    cut, _ = net(x[7:], state.detach())
    assert_close(cut, y, 1e-12)
    assert gradients(cut, x)[0][:7].eq(0).all()


def test_state_of_a_shallower_pass_serves_a_deeper_one():
    net = make({"dilation": (1, 2)})
    x = torch.randn(9, 2, 2)
    _, shallow = net(x[:5], depth=2)
    y, deep = net(x[5:], shallow, depth=6)
    h, c = shallow.h[-1:], shallow.c[-1:]
    spans = net.state_form.spans(7)
    assert deep.spans == (0, *spans[1:])
    # by hand: levels 1 and 2 as they were, every deeper level from the rows of level 2, the oldest repeated
    rows = [shallow.h[: spans[1]], shallow.h[spans[1] :]]
    rows_c = [shallow.c[: spans[1]], shallow.c[spans[1] :]]
    for span in spans[3:]:
        rows.append(h.expand(span, -1, -1))
        rows_c.append(c.expand(span, -1, -1))
    expanded = TrellisState(torch.cat(rows), torch.cat(rows_c), shallow.x, (0, *spans[1:]))
    assert_close(net(x[5:], expanded, depth=6)[0], y, 0.0)
    assert net(x[5:], deep, depth=3)[1].spans == (0, *spans[1:4])  # and a deeper one serves a shallower


def test_select_reorders_drops_and_repeats_sequences():
    net = make({"kernel_size": 3})
    x = torch.randn(6, 4, 2)
    _, state = net(x)
    more = torch.randn(3, 4, 2)
    expected, _ = net(more, state)
    for rows in ([2, 0], [1, 1, 3], torch.tensor([3]), torch.tensor([True, False, False, True])):
        index = torch.as_tensor(rows)
        assert_close(net(more[:, index], state.select(rows))[0], expected[:, index], 1e-12)
    for bad in ([4], [-1], [[0]], [0.5], [True, False]):
        with pytest.raises(ValueError, match="rows"):
            state.select(bad)
    for bad in (slice(0, 1), "0", None):
        with pytest.raises(TypeError, match="rows"):
            state.select(bad)


def test_to_changes_dtype_and_device_of_all():
    _, state = make({})(torch.randn(3, 2, 2))
    single = state.to(torch.float32)
    assert {single.h.dtype, single.c.dtype, single.x.dtype} == {torch.float32}
    assert single.spans == state.spans
    assert state.to("meta").h.is_meta


def test_repackaged_state_is_approximate_only_within_the_receptive_field():
    net = make({})
    x = torch.randn(30, 1, 2)
    whole, _ = net(x)
    _, state = net(x[:10])
    y, _ = net(x[10:], state.repackage())
    first = net.num_layers  # layers * (k - 1) * d steps see the seam
    assert (y[:first] - whole[10 : 10 + first]).abs().max() > 1e-3
    assert_close(y[first:], whole[10 + first :], 1e-12)


def test_bad_pairs_are_named():
    with pytest.raises(ValueError, match="state h must be"):
        TrellisState(torch.zeros(5))
    with pytest.raises(ValueError, match="state c must have the shape"):
        TrellisState(torch.zeros(2, 5), torch.zeros(3, 5))
    with pytest.raises(TypeError, match="state c"):
        TrellisState(torch.zeros(2, 5), 0.0)
    with pytest.raises(TypeError, match="state x"):
        TrellisState(torch.zeros(2, 5), x="x")
    with pytest.raises(ValueError, match=r"state h must be \(3, batch, hidden\) with spans \(1, 2\), got \(1, 2, 5\)"):
        TrellisState(torch.zeros(1, 2, 5), spans=(1, 2))


def test_a_state_keeps_nothing_of_the_callers_memory():
    net = make({})
    x = torch.randn(8, 1, 2)
    expected, _ = net(x)
    for grad in (True, False):
        buffer, state, outputs = torch.empty(1, 1, 2), None, []
        with torch.set_grad_enabled(grad):
            for step in x:
                buffer.copy_(step)
                y, state = net(buffer.clone() if grad else buffer, state)
                outputs.append(y)
        assert_close(torch.cat(outputs), expected, 1e-12)
    chunk = x.clone()
    _, state = net(chunk)
    chunk.zero_()
    assert_close(state.x, x[-1:], 0.0)


def test_a_state_is_taken_apart_as_that_of_an_lstm():
    net, x = TrellisNet(3, 6, 4, dilation=[1, 2]), torch.randn(7, 2, 3)
    y, (h, c) = net(x)
    assert h.shape == c.shape == (1, 2, 6)
    assert_close(h[0], y[-1])
    _, (lstm_h, lstm_c) = torch.nn.LSTM(3, 6)(x)
    assert (h.shape, c.shape) == (lstm_h.shape, lstm_c.shape)
    assert_close(net(x, (h, c))[0], net(x, net(x)[1].repackage())[0])
    with pytest.raises(TypeError, match=r"this state has no memory c.*write `y, state = net"):
        _, (h, c) = TrellisNet(3, 6, 4, cell="tanh")(x)
