"""Bad options and bad calls: errors that name the argument, its value and what was expected."""

from dataclasses import replace

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from reference import make
from trellisnet import Cell, TrellisNet


def test_numpy_integers_are_integers():
    numpy = pytest.importorskip("numpy")
    net = TrellisNet(
        numpy.int64(2), numpy.int64(6), numpy.int32(3), kernel_size=numpy.int64(3), dilation=numpy.int64(2)
    )
    y, _ = net(torch.randn(5, 2, 2), lengths=numpy.array([5, 3]))
    assert y[3:, 1].eq(0).all()
    numbers = (net.input_size, net.hidden_size, net.num_layers, net.output_size, net.kernel_size, net.receptive_field)
    assert all(type(number) is int for number in numbers)
    cycle = TrellisNet(2, 6, 3, dilation=numpy.array([1, 2]), groups=torch.tensor([2, 4]))
    assert (cycle.dilation, cycle.groups) == ((1, 2), (2, 4))


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "array", "tensor"])
def test_numbers_of_numpy_and_torch_are_numbers(kind):
    numpy = pytest.importorskip("numpy")
    make_number = {"array": numpy.array, "tensor": torch.tensor}.get(kind) or getattr(numpy, kind)
    net = TrellisNet(2, 6, 3, hidden_dropout=make_number(0.25), tolerance=make_number(0.5))
    assert (net.hidden_dropout, net.tolerance) == (0.25, 0.5)
    assert type(net.hidden_dropout) is type(net.tolerance) is float
    net(torch.randn(5, 2, 2))


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
    ({"dilation": torch.tensor([1.5, 2])}, TypeError, r"dilation\[0\]"),
    ({"dtype": torch.int64}, ValueError, "dtype.*int64"),
    ({"dtype": "float32"}, TypeError, "dtype.*'float32'"),
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
    ({"dropout": 0.1}, TypeError, "dropout is not an option of TrellisNet: hidden_dropout drops channels"),
    ({"proj_size": 3}, TypeError, "proj_size is not an option of TrellisNet: output_size=n"),
    ({"bidirectional": True}, TypeError, "bidirectional is not an option.*models of whole sequences"),
    ({"hiden_dropout": 0.1}, TypeError, "hiden_dropout is not an option of TrellisNet, did you mean 'hidden_dropout'"),
    ({"hidden_dropout": torch.tensor([0.1])}, TypeError, "hidden_dropout"),
    ({"hidden_dropout": torch.tensor(True)}, TypeError, "hidden_dropout"),
    ({"hidden_dropout": 10**5000}, ValueError, r"hidden_dropout must be in \[0, 1\), got inf"),
    ({"tolerance": -(10**5000)}, ValueError, "tolerance must be a number >.* got -inf"),
    ({"init": "zeros"}, ValueError, "init"),
]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    BAD_OPTIONS,
    ids=lambda v: ", ".join(v) if isinstance(v, dict) else "",
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
        ((x,), {"lengths": [5.0, 1.0, 1.0]}, TypeError, r"lengths\[0\].*integer.*5.0"),
        ((x,), {"lengths": [True] * 3}, TypeError, r"lengths\[0\].*True"),
        ((x,), {"lengths": 3}, ValueError, "lengths must be 3 integers"),
        ((x,), {"lengths": "5"}, TypeError, "lengths"),
        ((x, (torch.zeros(3, 6).long(), torch.zeros(3, 6).long())), {}, ValueError, "state.*int64"),
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


@pytest.mark.parametrize("number", range(35))
def test_bad_calls_are_named(number):
    """Also by a net that has answered good calls of the same shapes, and remembers them."""
    calls = bad_calls()
    assert len(calls) == 35
    args, options, error, message = calls[number]
    net, x = make(), torch.zeros(5, 3, 2)
    net(x, net(x)[1])
    net(x, tail=1, depth=4)
    with pytest.raises(error, match=message):
        net(*args, **options)
