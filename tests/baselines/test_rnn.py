"""The RNN bodies against loops written from the equations."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from loops import assert_chunks_equal_the_whole, assert_equals_loop, assert_padding_changes_nothing
from reference import assert_close
from trellisnet.baselines.melis import MelisLstmBody
from trellisnet.baselines.rnn import GruBody, LstmBody
from trellisnet.models.body import run_body

BODIES = [LstmBody, GruBody, MelisLstmBody]
DROPOUTS = [
    {"dropout": 0.3},
    {"dropout": 0.3, "variational": True},
    {"hidden_dropout": 0.4},
    {"weight_dropout": 0.5},
    {"dropout": 0.2, "variational": True, "hidden_dropout": 0.4, "weight_dropout": 0.5, "skip": True},
]


def slow(body, x, state):
    """Every layer, step by step. In training mode the masks are drawn as the body draws them, layer by layer."""
    p = (body.dropout, body.weight_dropout, body.hidden_dropout) if body.training else (0.0, 0.0, 0.0)
    ends, total = [], 0
    for layer in range(body.num_layers):
        if layer:
            x = x * F.dropout(torch.ones_like(x[:1] if body.variational else x), p[0])
        w, u = (getattr(body.rnn, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh"))
        b, v = (getattr(body.rnn, f"{name}_l{layer}") if body.bias else 0 for name in ("bias_ih", "bias_hh"))
        u = F.dropout(u, p[1])
        h, c = (tensor[layer] for tensor in state) if isinstance(state, tuple) else (state[layer], None)
        mask = F.dropout(torch.ones_like(h), p[2])
        steps = []
        for row in x:
            pre, past = row @ w.t() + b, (h * mask) @ u.t() + v
            if isinstance(body, LstmBody):
                i, f, g, o = (pre + past).chunk(4, -1)
                i, f = i.sigmoid(), f.sigmoid()
                c = f * c + (torch.minimum(i, 1 - f) if isinstance(body, MelisLstmBody) else i) * g.tanh()
                h = o.sigmoid() * c.tanh()
            else:
                (r, z, n), (r_past, z_past, n_past) = pre.chunk(3, -1), past.chunk(3, -1)
                z = (z + z_past).sigmoid()
                h = (1 - z) * (n + (r + r_past).sigmoid() * n_past).tanh() + z * h
            steps.append(h)
        x = torch.stack(steps)
        total = total + x if body.skip else x
        ends.append((h, c))
    y = total if body.down is None else total @ body.down.weight.t() + body.down.bias
    h, c = zip(*ends, strict=True)
    return y, (torch.stack(h), torch.stack(c)) if isinstance(body, LstmBody) else torch.stack(h)


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [
        (1, 1, {}),
        (7, 3, {"num_layers": 2, "output_size": 4}),
        (5, 1, {"num_layers": 3, "skip": True}),
        (5, 2, {"num_layers": 2, "bias": False, "skip": True}),
    ],
)
def test_outputs_states_and_gradients_are_those_of_the_equations(kind, steps, batch, options):
    assert_equals_loop(kind(3, hidden_size=6, **options), slow, steps, batch)


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("options", DROPOUTS)
@pytest.mark.parametrize("training", [True, False])
def test_dropouts_are_those_of_the_equations(kind, options, training):
    assert_equals_loop(kind(3, hidden_size=6, num_layers=3, **options).train(training), slow)


@pytest.mark.parametrize("kind", BODIES)
def test_dropout_changes_no_parameter_and_nothing_in_evaluation(kind):
    body, x = kind(3, hidden_size=6, num_layers=2, weight_dropout=0.5, hidden_dropout=0.5), torch.randn(5, 2, 3)
    before = [parameter.clone() for parameter in body.parameters()]
    assert not torch.equal(body(x)[0], body(x)[0])
    assert torch.equal(body.eval()(x)[0], body(x)[0])
    assert all(map(torch.equal, before, body.parameters()))


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("options", [{}, {"skip": True}])
def test_chunks_equal_the_whole(kind, options):
    assert_chunks_equal_the_whole(kind(3, hidden_size=6, num_layers=2, **options))


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("options", [{}, {"skip": True}])
def test_one_call_for_sequences_of_unequal_lengths(kind, options):
    assert_padding_changes_nothing(kind(3, hidden_size=6, num_layers=2, output_size=4, **options))


@pytest.mark.parametrize("options", DROPOUTS[1:])  # the masks of the first depend on the number of steps
def test_padding_changes_nothing_under_dropout(options):
    """A sequence's state at its end is that of a shorter call with the same masks."""
    body, x = LstmBody(3, hidden_size=6, num_layers=2, **options), torch.randn(9, 2, 3)
    torch.manual_seed(1)
    y, state = body(x, lengths=[9, 4])
    torch.manual_seed(1)
    shorter, after = body(x[:4])
    assert_close(y[:4], shorter)
    assert not y[4:, 1].any()
    assert_close([tensor[:, 1] for tensor in state], [tensor[:, 1] for tensor in after])


@pytest.mark.parametrize("kind", BODIES)
def test_the_last_step_of_each_sequence(kind):
    body, x, lengths = kind(3, hidden_size=6, output_size=4), torch.randn(9, 3, 3), [9, 1, 4]
    y, _ = body(x, lengths=lengths)
    last = run_body(body, x, lengths=lengths, tail=1).output
    assert_close(last[0], torch.stack([y[n - 1, row] for row, n in enumerate(lengths)]))


@pytest.mark.parametrize("kind", BODIES)
def test_the_start_of_our_own_is_the_default(kind):
    body = kind(3, hidden_size=100)
    assert body.rnn.weight_hh_l0.abs().max() > 0.19  # torch's bound is 0.1
    biases = body.rnn.bias_ih_l0 + body.rnn.bias_hh_l0
    assert biases.sum() == (0 if kind is GruBody else 100)  # the forget gate begins open
    torch.manual_seed(1)
    body = kind(3, hidden_size=100, init="torch")
    torch.manual_seed(1)
    assert torch.equal(body.rnn.weight_hh_l0, (nn.GRU if kind is GruBody else nn.LSTM)(3, 100).weight_hh_l0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"hidden_size": 0}, ValueError, "hidden_size must be an integer >= 1, got 0"),
        ({"hidden_size": 4, "num_layers": "2"}, TypeError, "num_layers must be an integer >= 1, got '2'"),
        ({"hidden_size": 4, "dropout": 0.1}, ValueError, "dropout acts between layers: got dropout=0.1"),
        ({"hidden_size": 4, "bias": "false"}, TypeError, "bias must be True or False, got 'false'"),
        ({"hidden_size": 4, "init": "torhc"}, ValueError, "did you mean 'torch'"),
        ({"hidden_size": 4, "weight_dropout": 1.5}, ValueError, r"weight_dropout must be in \[0, 1\), got 1.5"),
        ({"hidden_size": 4, "hidden_dropout": "0"}, TypeError, r"hidden_dropout must be a number in \[0, 1\), got '0'"),
        ({"hidden_size": 4, "skip": "yes"}, TypeError, "skip must be True or False, got 'yes'"),
        ({"hidden_size": 4, "variational": 1}, TypeError, "variational must be True or False, got 1"),
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
