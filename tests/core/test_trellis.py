"""The module against the specification: outputs and all gradients, in float64."""

import copy
import io
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from reference import assert_close, gradients, naive, naive_output
from trellisnet import Cell, TrellisNet
from trellisnet.core.naive import Left


class Leaky(Cell):
    """A cell of the user's own, without a gradient of its own."""

    gates, has_memory = 2, True

    def __call__(self, pre, memory):
        candidate, gate = pre.unbind(-2)
        state = torch.lerp(memory, candidate.tanh(), gate.sigmoid())
        return state * 2, state


CELLS = ["tanh", "relu", "lstm", "gru", Leaky()]
OPTIONS = {
    "plain": {},
    "recompute": {"memory": "recompute"},
    "kernel 3": {"kernel_size": 3},
    "dilations": {"dilation": (1, 2, 4)},
    "dilation beyond T": {"dilation": (2, 64)},
    "kernel 4, dilated": {"kernel_size": 4, "dilation": (1, 3), "memory": "recompute"},
    "some injected": {"inject_every": 2},
    "no bias": {"bias": False},
    "no bias, some injected": {"bias": False, "inject_every": 3},
    "weight norm": {"weight_norm": True},
    "output": {"output_size": 3},
    "groups": {"groups": (2, 1, 3), "output_size": 3},
    "one group": {"groups": (6,)},
    "groups, recompute": {"groups": (2, 1, 3), "kernel_size": 3, "dilation": (1, 2), "memory": "recompute"},
    "groups, no bias": {"groups": (4, 2), "bias": False, "weight_norm": True},
    "staggered": {"staggered": (2, 1, 3)},
}


def make(input_size=2, **options):
    net = TrellisNet(input_size, 6, num_layers=4, **options)
    for parameter in net.parameters():  # larger than the initialisation, so that a wrong gate shows
        nn.init.uniform_(parameter, -0.8, 0.8)
    return net


def check(net, x, tolerance=1e-10, **call):
    """Compare a net's output, last state and gradients with the specification's."""
    x.requires_grad_()
    y, state = net(x, **call)
    hidden, memory = naive(net, x, **call)
    expected = hidden[-1][..., -net.output_size :]
    assert_close(y, expected, tolerance)
    assert_close(state.last[0], hidden[-1, -1], tolerance)
    if net.cell.has_memory:
        assert_close(state.last[1], memory[-1, -1], tolerance)
    tensors = (x, *net.parameters())
    expected_gradients = gradients(expected, *tensors)
    for retain in (True, False):
        assert_close(gradients(y, *tensors, retain=retain), expected_gradients, tolerance)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("cell", CELLS, ids=lambda c: c if isinstance(c, str) else "own")
def test_equals_specification(cell, options):
    check(make(cell=cell, **options), torch.randn(7, 3, 2))


@pytest.mark.parametrize("input_size", [1, 9], ids=["narrow", "wide"])
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (1, 3), (2, 1), (5, 1), (13, 2)])
def test_equals_specification_at_odd_sizes(steps, batch, input_size):
    check(make(input_size, dilation=(1, 2)), torch.randn(steps, batch, input_size))


@pytest.mark.parametrize("cell", CELLS, ids=lambda c: c if isinstance(c, str) else "own")
@pytest.mark.parametrize("depth", [1, 2, 9])
def test_any_depth_with_the_same_weights(cell, depth):
    check(make(cell=cell, dilation=(1, 2)), torch.randn(6, 2, 2), depth=depth)


@pytest.mark.parametrize("cell", ["tanh", "relu", "lstm", "gru"])
@pytest.mark.parametrize("wide", [1, 1000])
@pytest.mark.parametrize("tiles", [1, 100])
@pytest.mark.parametrize("options", [{}, {"groups": (2, 4)}, {"kernel_size": 3, "dilation": (2, 3)}])
def test_tiles_and_kept_levels_change_nothing(monkeypatch, options, tiles, wide, cell):
    monkeypatch.setattr("trellisnet.core.forward.TILE", tiles)
    monkeypatch.setattr("trellisnet.core.forward.TILE_ROWS", 1)
    monkeypatch.setattr("trellisnet.core.keep.WIDE", wide)
    monkeypatch.setattr("trellisnet.core.keep.REMADE", 3)
    for memory in ("store", "recompute"):
        check(make(cell=cell, memory=memory, **options), torch.randn(9, 2, 2), depth=7)


def test_left_context_reaches_every_level_with_gradients():
    net = make(kernel_size=3, dilation=(1, 2))
    x = torch.randn(9, 2, 2, requires_grad=True)
    hidden, memory = naive(net, x)
    first, state = net(x[:5])
    for level in range(1, 5):
        rows = slice(sum(state.spans[:level]), sum(state.spans[: level + 1]))
        assert_close(state.h[rows], hidden[level, 5 - state.spans[level] : 5])
        assert_close(state.c[rows], memory[level, 5 - state.spans[level] : 5])
    second, _ = net(x[5:], state)
    tensors = (x, *net.parameters())
    whole = gradients(torch.cat([first, second]), *tensors)
    assert_close(whole, gradients(hidden[-1], *tensors))


def test_pair_as_state_with_gradients():
    net = make(dilation=(1, 3))
    x = torch.randn(5, 2, 2)
    h, c = torch.randn(2, 2, 6, requires_grad=True).unbind()
    left = Left(hidden={i: h.expand(3, -1, -1) for i in range(4)}, memory={i: c.expand(3, -1, -1) for i in range(4)})
    expected = naive_output(net, x, left=left)
    y, _ = net(x, (h, c))
    assert_close(y, expected)
    assert_close(gradients(y, h, c), gradients(expected, h, c))


def test_hidden_dropout_is_one_mask_a_sequence(monkeypatch):
    net = make(cell="gru", hidden_dropout=0.5)
    x = torch.randn(5, 3, 2)
    mask = net._mask(x)
    assert mask.shape == (3, 6)
    assert set(mask.unique().tolist()) == {0.0, 2.0}
    monkeypatch.setattr(net, "_mask", lambda x: mask)
    x.requires_grad_()
    expected = naive_output(net, x, mask=mask)
    for memory in ("store", "recompute"):
        net.memory = memory
        y, _ = net(x)
        assert_close(y, expected)
        tensors = (x, *net.parameters())
        assert_close(gradients(y, *tensors), gradients(expected, *tensors))
    net.eval()
    monkeypatch.undo()
    assert net._mask(x) is None


def test_aux_outputs_are_those_of_every_nth_level():
    net = make(aux_every=3, output_size=2)
    x = torch.randn(6, 2, 2, requires_grad=True)
    hidden, _ = naive(net, x, depth=7)
    y, _, aux = net(x, aux=True, depth=7)
    assert_close(aux, hidden[[3, 6]][..., -2:])
    assert_close(y, hidden[7][..., -2:])
    assert_close(gradients(aux, x), gradients(hidden[[3, 6]][..., -2:], x))


def test_aux_of_a_depth_without_aux_levels_is_empty():
    net = make(aux_every=3)
    y, _, aux = net(torch.randn(5, 2, 2), aux=True, depth=2)
    assert aux.shape == (0, *y.shape)
    net.aux_every = 1  # and settings may change between calls
    assert len(net(torch.randn(5, 2, 2), aux=True, depth=2)[2]) == 2


def test_numpy_integers_are_integers():
    numpy = pytest.importorskip("numpy")
    net = TrellisNet(numpy.int64(2), 6, numpy.int32(3), dilation=numpy.int64(2))
    y, _ = net(torch.randn(5, 2, 2), lengths=numpy.array([5, 3]))
    assert y[3:, 1].eq(0).all()


def test_input_forms_are_those_of_lstm():
    lstm = nn.LSTM(2, 6, batch_first=True)
    net = make(batch_first=True, aux_every=2)
    x = torch.randn(3, 7, 2)  # (B, T, C)
    y, _, aux = net(x, aux=True)
    assert y.shape == lstm(x)[0].shape
    assert aux.shape == (2, 3, 7, 6)
    time_major = make(aux_every=2)
    time_major.load_state_dict(net.state_dict())
    assert_close(time_major(x.transpose(0, 1))[0].transpose(0, 1), y, 0.0)
    alone, state, alone_aux = net(x[1], aux=True)
    assert alone.shape == lstm(x[1])[0].shape
    assert_close(alone, y[1], 1e-12)
    assert_close(alone_aux, aux[:, 1], 1e-12)
    assert state.batch_size == 1
    sequences = [x[0, :4], x[1], x[2, :1]]
    packed = pack_sequence(sequences, enforce_sorted=False)
    out, state = net(packed)
    theirs, _ = lstm(packed)
    assert [getattr(out, name).tolist() for name in ("batch_sizes", "sorted_indices", "unsorted_indices")] == [
        getattr(theirs, name).tolist() for name in ("batch_sizes", "sorted_indices", "unsorted_indices")
    ]
    padded, lengths = pad_packed_sequence(out, batch_first=True)
    for row, n in enumerate(lengths.tolist()):
        expected, own = net(sequences[row])
        assert_close(padded[row, :n], expected, 1e-12)
        assert_close(state.select([row]).h, own.h, 1e-12)


def test_lengths_equal_the_sequences_alone_and_ignore_what_lies_beyond():
    net = make(kernel_size=3, dilation=(1, 2))
    x = torch.randn(8, 3, 2)
    lengths = [8, 1, 5]
    before = net(torch.randn(4, 3, 2))[1]
    for row, n in enumerate(lengths):
        x[n:, row] = float("nan")
    y, state = net(x, before, lengths=torch.tensor(lengths))
    for row, n in enumerate(lengths):
        expected, own = net(x[:n, row : row + 1], before.select([row]))
        assert_close(y[:n, row : row + 1], expected, 1e-12)
        assert y[n:, row].eq(0).all()
        for a, b in zip((state.h, state.c, state.x), (own.h, own.c, own.x), strict=True):
            assert_close(a[:, row : row + 1], b, 1e-12)
    assert all(gradient.isfinite().all() for gradient in gradients(y, *net.parameters()))


@pytest.mark.parametrize(
    "options",
    [{}, {"dilation": (1, 1, 2, 4, 8)}, {"kernel_size": 3, "dilation": (1, 3)}, {"groups": (2, 4)}, {"cell": "gru"}],
)
@pytest.mark.parametrize("memory", ["store", "recompute"])
@pytest.mark.parametrize("wide", [1, 1000])
@pytest.mark.parametrize("tail", [1, 2, 5, 11])
def test_tail_equals_the_end_of_the_full_run(monkeypatch, options, memory, wide, tail):
    monkeypatch.setattr("trellisnet.core.keep.WIDE", wide)
    net = make(memory=memory, aux_every=2, **options)
    net.num_layers = 6
    x = torch.randn(11, 2, 2, requires_grad=True)
    state = net(torch.randn(9, 2, 2))[1]
    for start in (None, state, state.repackage()):
        full, _, full_aux = net(x, start, aux=True)
        y, none, aux = net(x, start, tail=tail, aux=True)
        assert none is None
        assert_close(y, full[-tail:])
        assert_close(aux, full_aux[:, -tail:])
        tensors = (x, *net.parameters(), *([start.h, start.c] if start is state else []))
        assert_close(gradients(y, *tensors), gradients(full[-tail:], *tensors))
        assert_close(gradients(aux, *tensors), gradients(full_aux[:, -tail:], *tensors))


def test_tail_with_lengths_is_each_sequences_own():
    net = make(dilation=(1, 2, 4), aux_every=2)
    lengths, tail = [11, 3, 7, 10], 3
    x = torch.randn(11, 4, 2, requires_grad=True)
    full, _, full_aux = net(x, aux=True)
    expected = torch.stack([full[n - tail : n, b] for b, n in enumerate(lengths)], 1)
    y, _, aux = net(x, lengths=lengths, tail=tail, aux=True)
    assert_close(y, expected)
    assert_close(aux, torch.stack([full_aux[:, n - tail : n, b] for b, n in enumerate(lengths)], 2))
    tensors = (x, *net.parameters())
    assert_close(gradients(y, *tensors), gradients(expected, *tensors))
    packed = pack_sequence([x[:n, b] for b, n in enumerate(lengths)], enforce_sorted=False)
    assert_close(net(packed, tail=tail)[0], y)
    assert_close(net(x, lengths=[5, 5, 5, 5], tail=2)[0], full[3:5])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dilation": (1, 2, 5)},
        {"kernel_size": 4},
        {"output_size": 2},
        {"inject_every": 3},
        {"groups": (2, 1, 3), "output_size": 3},
        {"groups": (2, 1, 3), "output_size": 4, "dilation": (3, 1, 2)},
        {"groups": (2, 1, 3)},
    ],
    ids=str,
)
def test_receptive_field_by_perturbation(options):
    net = make(cell="tanh", **options)
    steps = net.receptive_field + 5
    x = torch.randn(steps, 1, 2, requires_grad=True)
    y, _ = net(x, tail=1)
    (gradient,) = gradients(y, x)
    touched = gradient.abs().sum((1, 2)).nonzero().squeeze(1)
    assert steps - touched.min().item() == net.receptive_field


@pytest.mark.parametrize("options", [{}, {"groups": (2, 4)}], ids=str)
def test_weight_norm_survives_copies_and_files_after_a_step(options):
    net = make(weight_norm=True, **options)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(5, 2, 2)
    net(x)[0].square().mean().backward()
    optimizer.step()
    y = net(x)[0]
    assert_close(copy.deepcopy(net)(x)[0], y, 0.0)
    buffer = io.BytesIO()
    torch.save(net.state_dict(), buffer)
    buffer.seek(0)
    other = make(weight_norm=True, **options)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    assert_close(other(x)[0], y, 0.0)
    net.reset_parameters()
    assert (net(x)[0] - y).abs().max() > 1e-3


def test_nan_in_the_input_stays_nan_and_stays_in_its_sequence():
    for cell in ("tanh", "relu", "lstm", "gru"):
        x = torch.randn(6, 2, 2)
        x[3, 0] = float("nan")
        y, _ = make(cell=cell)(x)
        assert y[3:, 0].isnan().any(-1).all()
        assert y[:3].isfinite().all()
        assert y[:, 1].isfinite().all()


def test_paper_initialisation_and_default():
    paper = TrellisNet(50, 100, 2, init="paper")
    for parameter in paper.parameters():
        assert 0.008 < parameter.std().item() < 0.012
    net = TrellisNet(50, 100, 2)
    assert 0.19 < net.kernel.weight_hidden.abs().max().item() <= 0.2  # 2 / sqrt(H)
    assert TrellisNet(50, 100, 2, cell="relu").kernel.weight_hidden.abs().max().item() <= 0.1
    assert net.kernel.bias.view(4, 100).mean(1).tolist() == [0, 1, 0, 0]


def test_meta_device_and_dtype():
    net = TrellisNet(3, 8, 4, device="meta", dtype=torch.float32, weight_norm=True)
    assert all(p.is_meta and p.dtype == torch.float32 for p in net.parameters())


GOOD = {"input_size": 2, "hidden_size": 6, "num_layers": 4}
BAD_OPTIONS = [
    ({"input_size": 0}, ValueError, "input_size"),
    ({"hidden_size": -3}, ValueError, "hidden_size"),
    ({"num_layers": 0}, ValueError, "num_layers"),
    ({"num_layers": 2.5}, TypeError, "num_layers"),
    ({"output_size": 7}, ValueError, "output_size"),
    ({"cell": "lstmm"}, ValueError, "cell"),
    ({"cell": 3}, TypeError, "cell"),
    ({"cell": Cell()}, ValueError, "gates"),
    ({"kernel_size": 1}, ValueError, "kernel_size"),
    ({"dilation": 0}, ValueError, "dilation"),
    ({"dilation": [1, 0]}, ValueError, r"dilation\[1\]"),
    ({"dilation": []}, ValueError, "dilation"),
    ({"dilation": "1"}, TypeError, "dilation"),
    ({"hidden_dropout": 1.0}, ValueError, "hidden_dropout"),
    ({"weight_dropout": -0.1}, ValueError, "weight_dropout"),
    ({"weight_dropout": "0.1"}, TypeError, "weight_dropout"),
    ({"inject_every": 0}, ValueError, "inject_every"),
    ({"aux_every": 0}, ValueError, "aux_every"),
    ({"groups": [2, 3]}, ValueError, "groups.*6.*5"),
    ({"groups": [6, 0]}, ValueError, r"groups\[1\]"),
    ({"groups": [2, 4], "staggered": [4, 2]}, ValueError, "staggered"),
    ({"groups": [1, 1, 1, 1, 2]}, ValueError, "num_layers must be at least 5.*4"),
    ({"memory": "disk"}, ValueError, "memory.*'disk'"),
    ({"init": "zeros"}, ValueError, "init"),
]


@pytest.mark.parametrize(
    ("options", "error", "message"), BAD_OPTIONS, ids=lambda v: str(v) if isinstance(v, dict) else ""
)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        TrellisNet(**{**GOOD, **options})


def bad_calls():
    x = torch.zeros(5, 3, 2)
    other = TrellisNet(2, 4, 2)(x)[1]
    dilated = make(dilation=2)(x)[1]
    memoryless = make(cell="tanh")(x)[1]
    wider = TrellisNet(7, 6, 4)(torch.zeros(5, 3, 7))[1]
    return [
        ((torch.zeros(5, 3, 4),), {}, ValueError, "input_size = 2"),
        ((torch.zeros(2),), {}, ValueError, "shape"),
        ((torch.zeros(1, 5, 3, 2),), {}, ValueError, "shape"),
        (([[0.0, 1.0]],), {}, TypeError, "list"),
        ((torch.zeros(0, 3, 2),), {}, ValueError, "0 steps"),
        ((torch.zeros(5, 0, 2),), {}, ValueError, "0 sequences"),
        ((x.float(),), {}, ValueError, "dtype"),
        ((x, "state"), {}, TypeError, "str"),
        ((x, ("h", "c")), {}, TypeError, "str"),
        ((x, (torch.zeros(3, 6), torch.zeros(3, 5))), {}, ValueError, "shape of h"),
        ((x, other), {}, ValueError, "hidden_size = 6.*4"),
        ((x[:, :2], make()(x)[1]), {}, ValueError, "2 sequences.*3"),
        ((x, dilated), {}, ValueError, "another net"),
        ((x, memoryless), {}, ValueError, "no c"),
        ((x, wider), {}, ValueError, "inputs of shape"),
        ((x, make()(x)[1].to("meta")), {}, ValueError, "device"),
        ((x, replace(make()(x)[1], x=torch.zeros(1, 3, 2, device="meta"))), {}, ValueError, "device"),
        ((x,), {"lengths": [5, 6, 1]}, ValueError, r"lengths\[1\].*6"),
        ((x,), {"lengths": [5, 0, 1]}, ValueError, r"lengths\[1\].*0"),
        ((x,), {"lengths": [5, 1]}, ValueError, "3 integers"),
        ((x,), {"lengths": [5.0, 1.0, 1.0]}, TypeError, "integers"),
        ((x,), {"lengths": 3}, TypeError, "lengths must be 3 integers"),
        ((x, make(groups=(2, 4))(x)[1]), {}, ValueError, "inputs of shape None"),
        ((pack_sequence([x[:, 0]]),), {"lengths": [5]}, ValueError, "PackedSequence"),
        ((x,), {"tail": 6}, ValueError, "tail.*5.*6"),
        ((x,), {"tail": 0}, ValueError, "tail"),
        ((x,), {"tail": 3, "lengths": [5, 2, 5]}, ValueError, "tail.*2.*3"),
        ((x,), {"depth": 0}, ValueError, "depth"),
        ((x,), {"tail": 1.0}, TypeError, "tail"),
        ((x,), {"tail": [1]}, TypeError, "tail"),
        ((x,), {"depth": 4.0}, TypeError, "depth"),
        ((x,), {"aux": True}, ValueError, "aux_every"),
    ]


@pytest.mark.parametrize("number", range(32))
def test_bad_calls_are_named(number):
    """Also by a net that has answered good calls of the same shapes, and remembers them."""
    calls = bad_calls()
    assert len(calls) == 32
    args, options, error, message = calls[number]
    net, x = make(), torch.zeros(5, 3, 2)
    net(x, net(x)[1])
    net(x, tail=1, depth=4)
    with pytest.raises(error, match=message):
        net(*args, **options)


def test_a_setting_that_is_changed_counts_from_the_next_call_on():
    net, x = make(), torch.randn(5, 3, 2)
    before = net(x)[0]
    net.inject_every, net.num_layers = 2, 3
    again = TrellisNet(2, 6, num_layers=3, inject_every=2)
    again.load_state_dict(net.state_dict())
    assert_close([net(x)[0]], [again(x)[0]], 0.0)
    assert not torch.allclose(net(x)[0], before)
