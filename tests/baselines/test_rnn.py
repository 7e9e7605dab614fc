"""The RNN bodies against loops written from the equations."""

import pytest
import torch
from torch import nn

from reference import assert_close
from trellisnet.baselines.rnn import GruBody, LstmBody
from trellisnet.models.body import run_body

BODIES = [LstmBody, GruBody]


def slow(body, x, state=None):
    """Every layer, step by step: outputs (T, B, D) and the last hidden state of every layer."""
    below, last = list(x), []
    for layer in range(body.num_layers):
        w, u, b, v = (
            getattr(body.rnn, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        h = c = x.new_zeros(x.shape[1], body.hidden_size)
        if state is not None:
            h, c = (state[0][layer], state[1][layer]) if isinstance(body, LstmBody) else (state[layer], None)
        above = []
        for step in below:
            pre, past = step @ w.t() + b, h @ u.t() + v
            if isinstance(body, LstmBody):
                i, f, g, o = (pre + past).chunk(4, -1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
            else:
                (r, z, n), (r_past, z_past, n_past) = pre.chunk(3, -1), past.chunk(3, -1)
                z = (z + z_past).sigmoid()
                h = (1 - z) * (n + (r + r_past).sigmoid() * n_past).tanh() + z * h
            above.append(h)
        below = above
        last.append(h)
    y = torch.stack(below)
    return (y if body.down is None else y @ body.down.weight.t() + body.down.bias), torch.stack(last)


def hidden(state):
    return state[0] if isinstance(state, tuple) else state


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize(("steps", "batch", "layers", "output"), [(1, 1, 1, None), (7, 3, 2, 4), (5, 1, 3, None)])
def test_outputs_states_and_gradients_are_those_of_the_equations(kind, steps, batch, layers, output):
    body = kind(3, hidden_size=6, num_layers=layers, output_size=output)
    x = torch.randn(steps, batch, 3, requires_grad=True)
    (y, state), (expected, last) = body(x), slow(body, x)
    assert_close(y, expected)
    assert_close(hidden(state), last)
    inputs = [x, *body.parameters()]
    weight = torch.randn_like(y)
    found, right = (torch.autograd.grad((out * weight).sum(), inputs) for out in (y, expected))
    for one, other in zip(found, right, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("kind", BODIES)
def test_chunks_equal_the_whole(kind):
    body, x = kind(3, hidden_size=6, num_layers=2), torch.randn(9, 2, 3)
    first, state = body(x[:4])
    second, _ = body(x[4:], state)
    torch.testing.assert_close(torch.cat([first, second]), body(x)[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", BODIES)
def test_padding_changes_nothing(kind):
    body, x, lengths = kind(3, hidden_size=6, output_size=4), torch.randn(9, 3, 3), [9, 1, 4]
    y, state = body(x, lengths=lengths)
    for row, n in enumerate(lengths):
        alone, after = body(x[:n, row : row + 1])
        assert_close(y[:n, row : row + 1], alone)
        assert not y[n:, row].any()
        assert_close(hidden(state)[:, row : row + 1], hidden(after))
    last = run_body(body, x, lengths=lengths, tail=1).output
    assert_close(last[0], torch.stack([y[n - 1, row] for row, n in enumerate(lengths)]))


@pytest.mark.parametrize("kind", BODIES)
def test_the_start_of_our_own_is_the_default(kind):
    body = kind(3, hidden_size=100)
    assert body.rnn.weight_hh_l0.abs().max() > 0.19  # torch's bound is 0.1
    biases = body.rnn.bias_ih_l0 + body.rnn.bias_hh_l0
    assert biases.sum() == (100 if kind is LstmBody else 0)  # the forget gate begins open
    torch.manual_seed(1)
    body = kind(3, hidden_size=100, init="torch")
    torch.manual_seed(1)
    assert torch.equal(body.rnn.weight_hh_l0, (nn.LSTM if kind is LstmBody else nn.GRU)(3, 100).weight_hh_l0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"hidden_size": 0}, ValueError, "hidden_size must be an integer >= 1, got 0"),
        ({"hidden_size": 4, "num_layers": "2"}, TypeError, "num_layers must be an integer >= 1, got '2'"),
        ({"hidden_size": 4, "dropout": 0.1}, ValueError, "dropout acts between layers: got dropout=0.1"),
        ({"hidden_size": 4, "bias": "false"}, TypeError, "bias must be True or False, got 'false'"),
        ({"hidden_size": 4, "init": "torhc"}, ValueError, "did you mean 'torch'"),
    ],
)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        LstmBody(3, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"lengths": [3]}, "lengths must be 2 integers, one per sequence, got 1"),
        ({"lengths": [3, 0]}, r"lengths\[1\] must be an integer >= 1, got 0"),
        ({"lengths": [3, 9]}, r"lengths\[1\] must lie in 1 .. 4 \(the steps of x\), got 9"),
        ({"lengths": [4, 2], "tail": 3}, r"tail must be at most 2 \(the shortest sequence\), got 3"),
        ({"depth": 2}, "depth is no option of the body LstmBody: got depth=2"),
    ],
)
def test_bad_calls_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        run_body(LstmBody(3, hidden_size=4), torch.randn(4, 2, 3), **call)
