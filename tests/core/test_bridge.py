"""A trellis network is a network of attention layers, and the converse: both directions, in float64."""

import pytest
import torch
from torch import nn

from reference import assert_close, gradients, make, naive_output
from trellisnet import AttentionTrellis, TrellisNet, as_attention

CELLS = ["tanh", "relu", "lstm", "coupled", "gru", "highway", "nas"]
OPTIONS = {
    "plain": {},
    "kernel 3, dilated": {"kernel_size": 3, "dilation": 2},
    "kernel 4, dilations": {"kernel_size": 4, "dilation": (3, 1)},
    "some injected": {"inject_every": 2, "bias": False},
    "one hidden tap": {"hidden_taps": 1, "kernel_size": 3},
    "weight norm": {"weight_norm": True, "output_size": 3},
    "groups": {"groups": (2, 1, 3)},
    "staggered": {"staggered": (2, 4)},
}


CASES = [
    *((cell, kernel) for cell in CELLS for kernel in ("plain", "kernel 3, dilated", "kernel 4, dilations")),
    *((cell, options) for cell in ("lstm", "gru") for options in OPTIONS),
]


@pytest.mark.parametrize(("cell", "options"), dict.fromkeys(CASES))
def test_it_equals_the_trellis(cell, options):
    net, x = make(cell=cell, **OPTIONS[options]), torch.randn(9, 3, 2, requires_grad=True)
    attention = as_attention(net)
    _, before = net(x[:3])
    for state, call in ((None, {}), (None, {"lengths": [9, 2, 4], "tail": 2}), (before, {"lengths": [9, 1, 4]})):
        y, right = attention(x, state, **call)[0], net(x, state, **call)[0]
        assert_close(y, right)
        assert_close(gradients(y, x, *net.parameters()), gradients(right, x, *net.parameters()))
    after, right_after = attention(x, before)[1], net(x, before)[1]
    assert_close(after.h, right_after.h)
    assert_close(after.last, right_after.last)  # with the memory


@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (2, 1), (70, 1)])
def test_any_length_and_any_depth(steps, batch):
    net, x = make(aux_every=2), torch.randn(steps, batch, 2)
    attention = as_attention(net)
    assert_close(attention(x)[0], net(x)[0])
    assert_close(attention(x, depth=7)[0], net(x, depth=7)[0])
    assert_close(attention(x, aux=True)[2], net(x, aux=True)[2])


def test_a_stream_equals_the_whole():
    attention, x = as_attention(make(kernel_size=3)), torch.randn(11, 2, 2)
    whole, _ = attention(x)
    parts, state = [], None
    for chunk in x.split([1, 4, 1, 5]):
        y, state = attention(chunk, state)
        parts.append(y)
    assert_close(torch.cat(parts), whole, 1e-12)


def test_the_weights_are_shared():
    net = make()
    attention = as_attention(net)
    assert [id(p) for p in attention.parameters()] == [id(p) for p in net.parameters()]
    dense = attention.densify()
    assert id(dense.kernel.bias) != id(net.kernel.bias)
    x = torch.randn(5, 1, 2)
    assert_close(dense(x)[0], net(x)[0])


@pytest.mark.parametrize("cell", ["tanh", "lstm"])
def test_the_error_of_the_softmax_falls_exponentially(cell):
    net, x = make(cell=cell, kernel_size=3, dilation=2), torch.randn(15, 2, 2)
    right = net(x)[0]
    errors = {beta: (as_attention(net, beta=beta)(x)[0] - right).abs().max().item() for beta in (10, 14, 20, 40)}
    assert 1e-5 < errors[10] < 1e-2
    for smaller, larger in ((10, 14), (14, 20)):
        expected = torch.tensor(float(smaller - larger)).exp().item()
        assert errors[larger] / errors[smaller] == pytest.approx(expected, rel=0.05)
    assert errors[40] < 1e-14


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_beta_can_be_larger_than_any_number_of_the_dtype(dtype):
    net, x = make(cell="lstm").to(dtype), torch.randn(6, 2, 2, dtype=dtype)
    assert_close(as_attention(net, beta=10**300)(x)[0].double(), as_attention(net)(x)[0].double())


@pytest.mark.parametrize("beta", [None, 0.5, 3.0])
@pytest.mark.parametrize("options", [{}, {"kernel_size": 3, "dilation": 2}, {"weight_norm": True}, {"groups": (2, 4)}])
def test_attention_by_lag_is_a_trellis_of_the_windows_size(options, beta):
    attention, x = as_attention(make(cell="tanh", **options), beta=beta), torch.randn(12, 2, 2)
    net = attention.as_trellis()
    assert type(net) is TrellisNet
    assert net.kernel_size == 1 + (attention.kernel_size - 1) * attention.dilation[0]
    assert_close(net(x)[0], attention(x)[0])
    assert_close(naive_output(net, x), attention(x)[0])


def test_a_memory_that_one_head_reads_at_lag_1_is_that_of_a_trellis():
    trellis, x = make(cell="lstm", kernel_size=3), torch.randn(9, 2, 2)
    assert_close(as_attention(trellis).as_trellis()(x)[0], trellis(x)[0])


@pytest.mark.parametrize(
    ("options", "beta", "message"),
    [
        ({"dilation": (1, 2)}, None, r"one dilation for all layers, got dilation=\(1, 2\)"),
        ({"cell": "lstm", "dilation": 2}, None, "a cell without memory.*got dilation=2 and beta=None"),
        ({"cell": "gru"}, 3.0, "a cell without memory.*got dilation=1 and beta=3.0"),
    ],
)
def test_what_no_trellis_is_equal_to_is_named(options, beta, message):
    with pytest.raises(ValueError, match=message):
        as_attention(make(**options), beta).as_trellis()


@pytest.mark.parametrize(
    ("net", "beta", "error", "message"),
    [
        (nn.LSTM(2, 3), None, TypeError, "trellis must be a TrellisNet, got LSTM"),
        (TrellisNet(2, 3, 2, path="sweeps"), None, ValueError, "path='layers'.*'sweeps' carries"),
        (TrellisNet(2, 3, 2, path="steps"), None, ValueError, "path='layers'.*'steps' carries"),
        (AttentionTrellis(2, 4, 2), None, ValueError, "must not have attention already, got AttentionTrellis"),
        (as_attention(TrellisNet(2, 4, 2)), None, ValueError, "must not have attention already, got AttentionNet"),
        (TrellisNet(2, 3, 2), -1.0, ValueError, "beta must be a number >= 0, got -1.0"),
        (TrellisNet(2, 3, 2), 0, ValueError, "beta must be a number > 0, got 0"),
    ],
    ids=str,
)
def test_what_cannot_be_expressed_is_refused(net, beta, error, message):
    with pytest.raises(error, match=message):
        as_attention(net, beta)


def test_a_call_cannot_choose_another_path():
    with pytest.raises(ValueError, match="path must be one of 'layers', got 'sweeps'"):
        as_attention(make())(torch.randn(3, 1, 2), path="sweeps")
