"""The trellis with attention against its equations as loops: outputs, states and all gradients, in float64."""

import pytest
import torch
from torch import nn

from reference import assert_close, gradients, make, naive
from trellisnet import AttentionTrellis, TrellisNet, from_rnn
from trellisnet.core.attention import SMALLEST_PIECE
from trellisnet.core.naive import Left

CELLS = ["tanh", "relu", "lstm", "coupled", "gru", "highway", "nas"]
OPTIONS = {
    "plain": {},
    "kernel 3": {"kernel_size": 3},
    "kernel 4, dilated": {"kernel_size": 4, "dilation": (1, 2), "window": 9, "heads": 2},
    "some injected": {"inject_every": 2, "bias": False},
    "one hidden tap": {"hidden_taps": 1, "heads": 1},
    "weight norm": {"weight_norm": True, "output_size": 3},
    "groups": {"groups": (2, 1, 3), "output_size": 3},
    "staggered": {"staggered": (2, 1, 3)},
}


def attending(input_size=2, **options):
    """A small net whose attention has an effect."""
    net = AttentionTrellis(input_size, 6, num_layers=3, **{"window": 5, "heads": 3, **options})
    for parameter in net.parameters():
        nn.init.uniform_(parameter, -0.8, 0.8)
    return net


def expected(net, x, **options):
    attention = net.attention
    parts = (attention.weight_hidden, attention.weight_input, attention.lag_scores, attention.gamma)
    hidden, memory = naive(net, x, attention=parts, **options)
    return hidden[-1][..., -net.output_size :], hidden, memory


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("path", ["layers", "sweeps"])
def test_equals_the_equations(options, path):
    net, x = attending(path=path, **options), torch.randn(6, 2, 2, requires_grad=True)
    y, state = net(x)
    right, hidden, memory = expected(net, x)
    assert_close(y, right)
    assert_close(state.last[0], hidden[-1, -1])
    assert_close(state.last[1], memory[-1, -1])
    tensors = (x, *net.parameters())
    found = gradients(y, *tensors)
    assert_close(found, gradients(right, *tensors))
    assert all(gradient is not None and gradient.any() for gradient in found)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (5, 2)])
def test_every_cell_and_length(cell, steps, batch):
    net, x = attending(cell=cell), torch.randn(steps, batch, 2, requires_grad=True)
    y, right = net(x)[0], expected(net, x)[0]
    assert_close(y, right)
    tensors = (x, *net.parameters())
    assert_close(gradients(y, *tensors), gradients(right, *tensors))


def test_long_inputs_are_read_in_pieces():
    net, x = attending(window=3), torch.randn(SMALLEST_PIECE + 3, 1, 2)
    with torch.no_grad():
        assert_close(net(x)[0], expected(net, x)[0])


@pytest.mark.parametrize("options", [{}, {"path": "sweeps"}, {"kernel_size": 3, "dilation": (2, 1), "cell": "tanh"}])
def test_chunks_equal_the_whole(options):
    net, x = attending(**options), torch.randn(9, 2, 2, requires_grad=True)
    whole, last = net(x)
    for sizes in ([5, 4], [1, 2, 6], [1] * 9):
        parts, state = [], None
        for chunk in x.split(sizes):
            y, state = net(chunk, state)
            parts.append(y)
        assert_close(torch.cat(parts), whole, 1e-12)
        assert_close(state.h, last.h, 1e-12)
        tensors = (x, *net.parameters())
        assert_close(gradients(torch.cat(parts), *tensors), gradients(whole, *tensors))


def test_lengths_and_tail():
    net, x, lengths = attending(), torch.randn(9, 3, 2), [9, 1, 4]
    y, state = net(x, lengths=lengths)
    for row, n in enumerate(lengths):
        alone, own = net(x[:n, row : row + 1])
        assert_close(y[:n, row : row + 1], alone, 1e-12)
        assert not y[n:, row].any()
        assert_close(state.h[:, row : row + 1], own.h, 1e-12)
    last, nothing = net(x, lengths=lengths, tail=1)
    assert nothing is None
    assert_close(last[0], torch.stack([y[n - 1, row] for row, n in enumerate(lengths)]), 1e-12)
    assert_close(net(x, tail=3)[0], net(x)[0][-3:], 1e-12)


def test_a_given_state_stands_before_the_first_step():
    net, x, h = attending(cell="tanh"), torch.randn(5, 2, 2), torch.randn(2, 6)
    left = Left(hidden={level: h.expand(4, -1, -1) for level in range(4)})
    assert_close(net(x, h)[0], expected(net, x, left=left)[0])


def test_depth_aux_and_convergence():
    net, x = attending(aux_every=1, cell="tanh"), torch.randn(7, 2, 2)
    y, _, aux = net(x, aux=True)
    assert_close(aux[-1], y, 0.0)
    assert_close(aux[1], net(x, depth=2)[0], 1e-12)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.4)  # so that the iteration settles
    y, state = net(x, depth="converged", tolerance=1e-11)
    assert 3 < state.iterations[0] < 100
    assert_close(y, net(x, depth=100)[0], 1e-9)


def test_an_output_depends_on_its_receptive_field():
    net, x = attending(), torch.randn(30, 1, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(net(x)[0][25].square().sum(), x)
    reached = gradient.abs().sum((1, 2)).nonzero().flatten().tolist()
    assert (reached[0], reached[-1]) == (26 - net.receptive_field, 25)
    assert net.receptive_field_at(2) == 9
    assert attending(path="sweeps").receptive_field is None


ATTENDED = [
    *(("lstm", "layers", {"kernel_size": size, "dilation": (1, 2)}) for size in (2, 3)),
    *(("lstm", "sweeps", {"kernel_size": size}) for size in (3, 4)),
    *(("lstm", path, options) for path in ("layers", "sweeps") for options in (
        {"weight_norm": True}, {"groups": (2, 1, 3)}, {"kernel_size": 3, "dilation": (1, 2), "weight_norm": True},
    )),
    *((cell, "layers", {"kernel_size": size, "weight_norm": size == 3}) for cell in CELLS for size in (2, 3, 4)),
    *((cell, "sweeps", {"dilation": (2, 1)}) for cell in ("coupled", "gru", "highway")),  # affine memories
]  # fmt: skip


@pytest.mark.parametrize(("cell", "path", "options"), ATTENDED, ids=str)
def test_attend_changes_no_output(cell, path, options):
    net, x = make(cell=cell, path=path, **options), torch.randn(9, 3, 2, requires_grad=True)
    grown = net.attend(window=8, heads=2)
    assert not grown.attention.gamma.any()
    assert (grown.window, grown.heads) == (8, 2)
    _, state = net(x[:2])
    _, grown_state = grown(x[:2])
    shared = dict(net.named_parameters())
    ours = [parameter for name, parameter in grown.named_parameters() if name in shared]
    for own, before, call in (
        (None, None, {"depth": 6}),
        (None, None, {"lengths": [9, 2, 5], "tail": 2}),
        (grown_state, state, {"lengths": [9, 2, 5]}),
    ):
        y, right = grown(x, own, **call)[0], net(x, before, **call)[0]
        assert_close(y, right)
        assert_close(gradients(y, x, *ours), gradients(right, x, *shared.values()))
    after, expected_state = grown(x, grown_state)[1], net(x, state)[1]
    assert_close(after.last, expected_state.last)
    (gradient,) = gradients(grown(x)[0], grown.attention.gamma)
    assert gradient.any()  # training can go on from here


@pytest.mark.parametrize("rnn", [nn.RNN, nn.LSTM, nn.GRU])
def test_the_chain_from_an_rnn_changes_no_output(rnn):
    rnn, x = rnn(3, 4, num_layers=2), torch.randn(12, 2, 3)
    expected_output, _ = rnn(x)
    trellis = from_rnn(rnn, horizon=12)
    dense = trellis.densify()
    attention = dense.attend(window=4, heads=2)
    for net in (trellis, dense, attention, trellis.attend(window=4, heads=2).densify()):
        assert_close(net(x)[0], expected_output)
    counts = [sum(p.numel() for p in net.parameters()) for net in (trellis, dense, attention)]
    assert counts == sorted(set(counts))  # each step is freer


def test_training_goes_on_after_attend():
    net = TrellisNet(1, 8, num_layers=2).attend(window=6, heads=2)
    x = torch.randn(12, 8, 1)
    target = nn.functional.pad(x, (0, 0, 0, 0, 5, 0))[:12]  # five steps back: out of the reach of two layers
    optimiser, losses = torch.optim.Adam(net.parameters(), 2e-2), []
    for _ in range(60):
        loss = (net(x)[0][..., :1] - 0.5 * target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert net.attention.gamma.item() != 0


def test_an_equal_net_for_inference_has_the_attention():
    net, x = attending(weight_norm=True), torch.randn(6, 2, 2)
    fast = net.for_inference()
    assert isinstance(fast, AttentionTrellis)
    assert not fast.kernel.weight_norm
    assert_close(fast(x)[0], net(x)[0], 1e-12)


def test_options_dropout_and_other_forms_of_x_are_those_of_a_trellis():
    net = AttentionTrellis(2, 6, 3, batch_first=True, hidden_dropout=0.5, weight_dropout=0.5, window=4)
    x = torch.randn(2, 7, 2)
    assert net.train()(x)[0].shape == (2, 7, 6)
    assert_close(net.eval()(x[0])[0], net(x)[0][0], 1e-12)
    again = AttentionTrellis(2, **vars(net.options)).eval()
    again.load_state_dict(net.state_dict())
    assert_close(again(x.transpose(0, 1))[0].transpose(0, 1), net(x)[0], 1e-12)
    net.attention.gamma.data.fill_(1)
    net.reset_parameters()
    assert not net.attention.gamma.any()


def test_half_precision():
    net = attending(dtype=torch.bfloat16)
    y, state = net(torch.randn(7, 2, 2, dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
    assert net(torch.randn(1, 2, 2, dtype=torch.bfloat16), state)[0].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("options", "asked", "message"),
    [
        ({}, {"window": 1}, "window must be at least 2, the steps that 2 taps with dilation 1 read, got 1"),
        ({"kernel_size": 3, "dilation": (1, 4)}, {"window": 8}, "window must be at least 9"),
        ({}, {"heads": 4}, "hidden_size must be a multiple of heads = 4, got 6"),
        ({}, {"heads": 0}, "heads must be an integer >= 1, got 0"),
        ({"hidden_taps": 0, "path": "sweeps"}, {}, "hidden_taps must be at least kernel_size - 1 = 1.*got 0"),
        ({"path": "steps"}, {}, "path must be one of 'layers', 'sweeps', got 'steps'"),
    ],
)
def test_what_attention_cannot_do_is_named(options, asked, message):
    with pytest.raises(ValueError, match=message):
        make(**options).attend(**asked)


def test_attention_is_not_added_twice():
    with pytest.raises(ValueError, match="attend needs a net without attention, got one of window=5, heads=3"):
        attending().attend()
    with pytest.raises(ValueError, match="path must be one of 'layers', 'sweeps', got 'steps'"):
        attending()(torch.randn(3, 1, 2), path="steps")


def test_the_default_window_is_64_or_what_the_taps_read():
    assert make().attend().window == 64
    assert make(dilation=(1, 100)).attend().window == 101


def test_explain_does_not_count_what_it_does_not_know():
    with pytest.raises(ValueError, match="explain does not know attention, got AttentionTrellis"):
        attending().explain(10)
