"""Theorem 1: a trellis network made of an RNN gives the RNN's output on every window, at every step (float64)."""

import pytest
import torch
from torch import nn

from reference import assert_close, gradients
from trellisnet import TrellisNet, from_rnn

KINDS = {
    "tanh": nn.RNN,
    "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
    "lstm": nn.LSTM,
    "gru": nn.GRU,
}


def truncated(rnn, x, horizon):
    """The M-truncated RNN, run from its start for every step."""
    modules = rnn if isinstance(rnn, list) else [rnn]
    outputs = []
    for t in range(len(x)):
        window = x[max(0, t - horizon + 1) : t + 1]
        for module in modules:
            window, _ = module(window)
        outputs.append(window[-1])
    return torch.stack(outputs)


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_truncated_rnn_at_every_step(kind, layers, bias):
    rnn = KINDS[kind](3, 5, num_layers=layers, bias=bias)
    x = torch.randn(17, 2, 3)
    for horizon in (1, 6):
        net = from_rnn(rnn, horizon=horizon)
        assert net.num_layers == horizon + layers - 1
        assert net.receptive_field == horizon
        assert_close(net(x)[0], truncated(rnn, x, horizon), 1e-12)
        assert_close(net(x, tail=3)[0], truncated(rnn, x, horizon)[-3:], 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_uneven_widths_through_a_list(kind):
    modules = [KINDS[kind](3, 4), KINDS[kind](4, 2), KINDS[kind](2, 5)]
    x = torch.randn(12, 2, 3)
    expected = truncated(modules, x, 4)
    for given in (modules, nn.ModuleList(modules)):
        net = from_rnn(given, horizon=4)
        assert net.groups == (4, 2, 5)
        assert_close(net(x)[0], expected, 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_it_streams_saves_trains_and_densifies(kind):
    rnn = KINDS[kind](3, 5, num_layers=2)
    net = from_rnn(rnn, horizon=6)
    x = torch.randn(14, 2, 3)
    whole, _ = net(x)
    state, outputs = None, []
    with torch.no_grad():
        for t in range(len(x)):
            y, state = net(x[t : t + 1], state)
            outputs.append(y)
    assert_close(torch.cat(outputs), whole, 1e-12)
    other = from_rnn(KINDS[kind](3, 5, num_layers=2), horizon=6)
    other.load_state_dict(net.state_dict())
    assert_close(other(x)[0], whole, 0.0)
    dense = net.densify()
    assert dense.groups is None
    assert_close(dense(x)[0], whole, 1e-12)
    assert sum(p.numel() for p in dense.parameters()) > sum(p.numel() for p in net.parameters())
    rebuilt = TrellisNet(3, 10, dense.num_layers, 5, cell=kind, staggered=dense.staggered)
    rebuilt.load_state_dict(dense.state_dict())
    assert_close(rebuilt(x)[0], whole, 1e-12)
    for trainee in (net, dense):
        optimizer = torch.optim.Adam(trainee.parameters(), lr=1e-2)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = (trainee(x)[0] - x.cumsum(0).sin().sum(-1, keepdim=True) * 0.3).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.8 * losses[0]


def test_groups_are_computed_by_group_and_stay_apart():
    """A trained mixed-group net keeps the sparsity of the proof: no gradient crosses where the kernel has none."""
    net = from_rnn(nn.LSTM(3, 4, num_layers=2), horizon=3)
    _, hidden, _ = net.kernel.dense(net.weights())
    older, newest = hidden.unflatten(2, (4, 8))
    assert older[4:, :, :4].eq(0).all()
    assert older[:4, :, 4:].eq(0).all()
    assert newest[..., :4].eq(0).all()
    assert newest[4:, :, 4:].eq(0).all()
    assert sum(p.numel() for p in net.parameters()) == 16 * (3 + 4 + 1) + 16 * (4 + 4 + 1)


def test_gradients_are_those_of_the_rnn():
    lstm = nn.LSTM(3, 4)
    net = from_rnn(lstm, horizon=9)
    x = torch.randn(9, 2, 3, requires_grad=True)
    y, expected = net(x)[0], lstm(x)[0]
    assert_close(gradients(y, x), gradients(expected, x), 1e-12)
    order = torch.cat([torch.arange(16).view(4, 4)[i] for i in (0, 1, 3, 2)])
    for ours, theirs in (("weight_past_0", lstm.weight_hh_l0), ("weight_below_0", lstm.weight_ih_l0)):
        (ours_grad,), (theirs_grad,) = gradients(y, getattr(net.kernel, ours)), gradients(expected, theirs)
        assert_close(ours_grad[0].t(), theirs_grad[order], 1e-12)


def test_batch_first_dtype_and_mode_are_taken_over():
    lstm = nn.LSTM(3, 4, batch_first=True, dtype=torch.float32).eval()
    net = from_rnn(lstm, horizon=5)
    assert not net.training
    x = torch.randn(2, 5, 3, dtype=torch.float32)
    assert_close(net(x)[0], lstm(x)[0], 1e-6)


@pytest.mark.parametrize(
    ("rnn", "horizon", "error", "message"),
    [
        (nn.LSTM(3, 4, bidirectional=True), 5, ValueError, "bidirectional=True"),
        (nn.LSTM(3, 4, proj_size=2), 5, ValueError, "proj_size=2"),
        (nn.Linear(3, 4), 5, TypeError, "Linear"),
        (nn.LSTM(3, 4), 0, ValueError, "horizon"),
        ([], 5, ValueError, "empty"),
        ([nn.LSTM(3, 4), nn.GRU(4, 4)], 5, ValueError, "one kind"),
        ([nn.RNN(3, 4), nn.RNN(4, 4, nonlinearity="relu")], 5, ValueError, "RNN_TANH.*RNN_RELU"),
        ([nn.GRU(3, 4).float(), nn.GRU(4, 4).double()], 5, ValueError, "float32.*float64"),
        ([nn.LSTM(3, 4), nn.LSTM(5, 4)], 5, ValueError, "input_size 5 follows"),
        ([nn.LSTM(3, 4), nn.LSTM(4, 4, num_layers=2)], 5, ValueError, "num_layers=2"),
    ],
)
def test_what_cannot_be_expressed_is_refused(rnn, horizon, error, message):
    with pytest.raises(error, match=message):
        from_rnn(rnn, horizon=horizon)


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_step_by_step_it_is_the_rnn_itself(kind, layers):
    rnn, x = KINDS[kind](3, 5, num_layers=layers), torch.randn(500, 2, 3)
    net = from_rnn(rnn, path="steps")
    assert net.num_layers == layers
    assert net.receptive_field is None
    expected, _ = rnn(x)
    y, state = net(x)
    assert_close(y, expected, 1e-12)
    assert state.spans == (1,)
    state, outputs = None, []
    with torch.no_grad():
        for t in range(50):
            y, state = net(x[t : t + 1], state)
            outputs.append(y)
    assert_close(torch.cat(outputs), expected[:50], 1e-12)
    dense = net.densify()
    assert_close(dense(x[:50])[0], expected[:50], 1e-12)


def test_its_gradients_step_by_step_are_those_of_the_rnn():
    lstm, x = nn.LSTM(3, 5, num_layers=2), torch.randn(20, 2, 3, requires_grad=True)
    net = from_rnn(lstm, path="steps")
    (found,), (expected,) = gradients(net(x)[0], x), gradients(lstm(x)[0], x)
    assert_close(found, expected)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"path": "steps", "horizon": 4}, ValueError, "horizon must be None with path='steps'.*got 4"),
        ({}, TypeError, "horizon must be an integer >= 1, got None"),
        ({"path": "sweeps"}, ValueError, "path must be one of 'layers', 'steps', got 'sweeps'"),
    ],
    ids=str,
)
def test_a_horizon_belongs_to_layers(options, error, message):
    with pytest.raises(error, match=message):
        from_rnn(nn.LSTM(3, 5), **options)
