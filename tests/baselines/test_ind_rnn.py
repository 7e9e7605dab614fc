"""The independently recurrent network against its equation."""

import pytest
import torch

from loops import assert_equals_loop, slow_stack
from reference import assert_close
from trellisnet.baselines.ind_rnn import IndRnnBody, bounded


def slow(body, x, state):
    def step(layer, x, states, mask):
        u = layer.u if body.longest is None else layer.u.clamp(-(2 ** (1 / body.longest)), 2 ** (1 / body.longest))
        h = (x @ layer.input.weight.t() + layer.input.bias + u * (states[0] * mask)).relu()
        return h, (h,)

    return slow_stack(step, body, x, state)


@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [(1, 1, {}), (7, 3, {"num_layers": 2, "output_size": 4, "longest": 3}), (5, 1, {"num_layers": 3})],
)
def test_outputs_states_and_gradients_are_those_of_the_equations(steps, batch, options):
    assert_equals_loop(IndRnnBody(3, hidden_size=6, **options), slow, steps, batch)


def test_one_mask_per_sequence_drops_hidden_channels():
    assert_equals_loop(IndRnnBody(3, hidden_size=6, num_layers=2, hidden_dropout=0.4, dropout=0.3), slow)


def test_weights_beyond_the_bound_count_as_the_bound_and_can_return():
    u = torch.tensor([1.5, 1.5, -1.5, -1.5, 1.0], requires_grad=True)
    assert_close(bounded(u, 1.2), torch.tensor([1.2, 1.2, -1.2, -1.2, 1.0]))
    bounded(u, 1.2).backward(torch.tensor([2.0, -2.0, 2.0, -2.0, -2.0]))  # a step goes against the gradient
    assert_close(u.grad, torch.tensor([2.0, 0.0, 0.0, -2.0, -2.0]))


def test_recurrent_weights_begin_in_0_to_1_and_the_last_layer_adds():
    body = IndRnnBody(3, hidden_size=200, num_layers=3)
    for layer in body.layers[:-1]:
        assert 0 <= layer.u.min() < 0.1
        assert 0.9 < layer.u.max() <= 1
    assert body.layers[-1].u.eq(1).all()


def test_batch_norm_counts_no_padding():
    body = IndRnnBody(3, hidden_size=6, batch_norm=True)
    plain = IndRnnBody(3, hidden_size=6)
    plain.load_state_dict(body.state_dict(), strict=False)
    x, lengths = torch.randn(7, 2, 3), [7, 3]
    rows = torch.cat([plain(x)[0][:n, row] for row, n in enumerate(lengths)])
    mean, variance = rows.mean(0), rows.var(0)
    expected = (rows - mean) / (rows.var(0, unbiased=False) + 1e-5).sqrt()
    y, state = body(x, lengths=lengths)
    assert_close(torch.cat([y[:n, row] for row, n in enumerate(lengths)]), expected)
    assert not y[3:, 1].any()
    assert_close(state, plain(x, lengths=lengths)[1])  # the state is the one before the norm
    norm = body.layers[0].norm
    assert_close((norm.mean, norm.variance), (0.1 * mean, 0.9 + 0.1 * variance))
    body.eval()
    known = (plain(x)[0] - norm.mean) / (norm.variance + 1e-5).sqrt()
    assert_close(body(x)[0], known)
    assert_close(body(x[:4], lengths=[4, 1])[0][:1], known[:1])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"longest": 0}, ValueError, "longest must be an integer >= 1, got 0"),
        ({"batch_norm": 1}, TypeError, "batch_norm must be True or False, got 1"),
        ({"hidden_dropout": 1.0}, ValueError, r"hidden_dropout must be in \[0, 1\), got 1.0"),
    ],
)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        IndRnnBody(3, hidden_size=4, **options)
