"""The forms a batch comes in, sequences of unequal lengths, and their tails."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from reference import assert_close, gradients, make


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


def test_a_default_device_changes_nothing():
    net, x = make(), torch.randn(11, 3, 2)
    packed = pack_sequence([x[:9, 0], x[:, 1], x[:2, 2]], enforce_sorted=False)
    ragged = {"lengths": [11, 2, 9]}

    def run():
        yield net(packed)[0].data
        yield net(x, **ragged, tail=2)[0]
        y, state = net(x, **ragged)
        yield y
        with torch.no_grad():
            yield net(x[:1], state.select([2, 0, 1]))[0]

    with torch.device("meta"):  # nothing can be computed there
        found = list(run())
    assert_close(found, list(run()), 0.0)


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
    [
        {},
        {"dilation": (1, 1, 2, 4, 8)},
        {"kernel_size": 3, "dilation": (1, 3)},
        {"groups": (2, 4)},
        {"cell": "gru"},
        {"cell": "tanh"},
    ],
)
@pytest.mark.parametrize("memory", ["store", "recompute"])
@pytest.mark.parametrize("tile_rows", [1, 1024])
@pytest.mark.parametrize("tail", [1, 2, 5, 11])
def test_tail_equals_the_end_of_the_full_run(monkeypatch, options, memory, tile_rows, tail):
    monkeypatch.setattr("trellisnet.core.engine.tiles.TILE", 1)
    monkeypatch.setattr("trellisnet.core.engine.tiles.TILE_ROWS", tile_rows)
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
        given = [z for z in (state.h, state.c) if z is not None and start is state]
        tensors = (x, *net.parameters(), *given)
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
