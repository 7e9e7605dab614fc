"""What `explain` says is what a call does: operations are counted while it runs."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trellisnet import TrellisNet
from trellisnet.baselines.rnn import LstmBody
from trellisnet.baselines.tcn import TcnBody
from trellisnet.core.peers import TcnPeer


class Counted(TorchDispatchMode):
    """Counts the multiply-adds of matrix products."""

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__.rstrip("_")
        if name in ("mm", "addmm", "bmm", "matmul"):
            left, right = args[-2:]
            self.total += math.prod(left.shape) * right.shape[-1]
        return func(*args, **(kwargs or {}))


def count(run):
    with Counted() as counted:
        run()
    return counted.total


PLANS = [
    ({}, {}),
    ({}, {"tail": 1}),
    ({"dilation": [1, 2, 4]}, {"tail": 3}),
    ({"kernel_size": 3, "dilation": [2, 1]}, {"tail": 2, "depth": 3}),
    ({"cell": "gru", "inject_every": 2}, {}),
    ({"hidden_taps": 1}, {"path": "sweeps", "tail": 2}),
    ({"dilation": [1, 2]}, {"path": "steps"}),
    ({"groups": [4, 6], "kernel_size": 2}, {"tail": 1}),
    ({"groups": [4, 6]}, {"path": "steps"}),
]


@pytest.mark.parametrize("channels", [2, 9])  # narrow inputs are multiplied in every layer
@pytest.mark.parametrize(("options", "asked"), PLANS)
def test_the_multiply_adds_are_those_of_a_call(channels, options, asked):
    net = TrellisNet(channels, 10, num_layers=5, **options)
    x = torch.randn(13, 2, channels)
    explained = net.explain(13, 2, **asked).trellis
    assert explained.multiply_adds == 3 * count(lambda: net(x, **asked))
    path = {key: value for key, value in asked.items() if key in ("path", "depth")}
    with torch.no_grad():
        state = net(x[:, :1], **path)[1]
        assert explained.streamed_multiply_adds == count(lambda: net(x[:1, :1], state, **path))


def test_a_training_step_is_three_forward_passes():
    net = TrellisNet(9, 10, num_layers=5, dilation=[1, 2])
    x = torch.randn(13, 2, 9, requires_grad=True)
    for memory, least, most in (("store", 0.9, 1), ("recompute", 0.8, 1)):
        net.memory = memory
        said = net.explain(13, 2).trellis.multiply_adds
        # the first layers have no level below to give a gradient to, and not every layer is run again
        assert least * said <= count(lambda: net(x)[0].sum().backward()) <= most * said


@pytest.mark.parametrize("memory", ["store", "recompute"])
@pytest.mark.parametrize("asked", [{}, {"tail": 1}, {"path": "sweeps"}])
def test_what_is_kept_is_what_autograd_holds(memory, asked):
    net = TrellisNet(3, 10, num_layers=7, dilation=[1, 2], memory=memory)
    sizes = []

    def pack(tensor):
        sizes.append(tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        net(torch.randn(40, 3, 3), **asked)
    kept = net.explain(40, 3, **asked).trellis.kept
    assert kept <= max(sizes) <= 2 * kept  # a spare buffer may be larger


def test_the_cells_and_the_field():
    net = TrellisNet(1, 6, num_layers=11, dilation=[1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
    told = net.explain(784, tail=1)
    assert told.trellis.receptive_field == net.receptive_field == 1025
    assert told.trellis.cells_whole == 11 * 784
    assert told.trellis.cells < 0.2 * told.trellis.cells_whole
    assert told.trellis.streamed_cells == 11
    sweeps = net.explain(784, tail=1, path="sweeps", depth=2).trellis
    assert (sweeps.receptive_field, sweeps.cells) == (None, 2 * 784)
    assert net.explain(784, path="steps").trellis.kept is None
    text = str(told)
    assert text.startswith("1 x 784 steps, the last 1 of the outputs")
    assert all(label in text for label in ("receptive field, steps", "unlimited", "1,025"))


@pytest.mark.parametrize(("channels", "width"), [(1, 8), (5, 8), (8, 8), (30, 20)])
def test_the_peers_are_the_bodies_of_this_package(channels, width):
    told = TrellisNet(channels, width, num_layers=9, kernel_size=3).explain(50, 2, tail=1)
    lstm = LstmBody(channels, hidden_size=told.lstm.width)
    tcn = TcnBody(channels, hidden_size=told.tcn.width, num_layers=told.tcn.layers)
    for body, figures in ((lstm, told.lstm), (tcn, told.tcn)):
        assert figures.parameters == sum(parameter.numel() for parameter in body.parameters())
        widths = [type(body)(channels, hidden_size=w, num_layers=figures.layers) for w in _around(figures.width)]
        sizes = [sum(parameter.numel() for parameter in each.parameters()) for each in widths]
        nearest = min(abs(size - told.trellis.parameters) for size in sizes)
        assert abs(figures.parameters - told.trellis.parameters) == nearest
    assert told.tcn.receptive_field == tcn.receptive_field >= told.trellis.receptive_field
    assert told.tcn.layers == 1 or TcnPeer(1, 1, told.tcn.layers - 1).receptive_field < told.trellis.receptive_field
    x = torch.randn(50, 2, channels)
    assert told.tcn.multiply_adds == 3 * count(lambda: tcn(x, tail=1))
    loop = LstmBody(channels, hidden_size=told.lstm.width, hidden_dropout=0.5)  # runs step by step
    assert told.lstm.multiply_adds == 3 * count(lambda: loop(x))


def _around(width):
    return range(max(1, width - 1), width + 2)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"steps": 0}, "steps must be an integer >= 1, got 0"),
        ({"steps": 9, "batch_size": 0}, "batch_size must be an integer >= 1, got 0"),
        ({"steps": 9, "tail": 10}, "tail must be at most 9"),
        ({"steps": 9, "path": "walk"}, "path must be one of"),
        ({"steps": 9, "depth": 0}, "depth must be"),
    ],
)
def test_bad_questions(asked, message):
    with pytest.raises(ValueError, match=message):
        TrellisNet(1, 4, num_layers=3).explain(**asked)
