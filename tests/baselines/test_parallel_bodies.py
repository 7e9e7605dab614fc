"""What all bodies that are parallel in time have in common: streams, padding, causality, precision, options."""

import pytest
import torch
from torch.utils import _pytree as pytree

from reference import assert_close
from trellisnet.models.bodies import make_body
from trellisnet.models.body import for_inference, run_body, select_rows

OPTIONS = {
    "tcn": {"num_layers": 3},
    "gated-conv": {"num_layers": 3, "bottleneck": 2},
    "qrnn": {"num_layers": 2, "convolved": "all", "kernel_size": 3},
    "transformer": {"num_layers": 2, "window": 4},
    "min-gru": {"num_layers": 2},
    "lru": {"num_layers": 2, "state_size": 5},
}


@pytest.fixture(params=OPTIONS)
def name(request):
    return request.param


def make(name, **options):
    return make_body(name, 3, **{"hidden_size": 6, **OPTIONS[name], **options})


def test_chunks_equal_the_whole(name):
    body, x = make(name, output_size=4), torch.randn(30, 2, 3)
    whole, last = body(x)
    for sizes in ([13, 17], [1, 3, 2, 24], [1] * 30):
        outputs, state = [], None
        for chunk in x.split(sizes):
            y, state = body(chunk, state)
            outputs.append(y)
        assert_close(torch.cat(outputs), whole, 1e-12)
        assert_close(pytree.tree_leaves(state), pytree.tree_leaves(last), 1e-12)


def test_padding_changes_nothing(name):
    body, x, lengths = make(name, output_size=4), torch.randn(9, 3, 3), [9, 1, 4]
    _, before = body(torch.randn(2, 3, 3))
    for state in (None, before):
        y, after = run_body(body, x, state, lengths=lengths).output, body(x, state, lengths=torch.tensor(lengths))[1]
        for row, n in enumerate(lengths):
            only = torch.tensor([row])
            alone, own = body(x[:n, row : row + 1], select_rows(state, only))
            assert_close(y[:n, row : row + 1], alone, 1e-12)
            assert not y[n:, row].any()
            assert_close(pytree.tree_leaves(select_rows(after, only)), pytree.tree_leaves(own), 1e-12)
        last = run_body(body, x, state, lengths=lengths, tail=1).output
        assert_close(last[0], torch.stack([y[n - 1, row] for row, n in enumerate(lengths)]), 1e-12)


def test_gradients_reach_back_through_a_state(name):
    body, x = make(name), torch.randn(8, 2, 3, requires_grad=True)
    _, state = body(x[:5])
    (chunked,) = torch.autograd.grad(body(x[5:], state)[0].square().sum(), x)
    (whole,) = torch.autograd.grad(body(x)[0][5:].square().sum(), x)
    assert_close(chunked, whole, 1e-12)
    assert chunked[:5].any()


@pytest.mark.parametrize("tail", [1, 2, 5])
def test_the_last_steps_are_those_of_the_whole(name, tail):
    body = make(name)
    for steps in (5, 60):
        x = torch.randn(steps, 2, 3)
        assert_close(run_body(body, x, tail=tail).output, body(x)[0][-tail:], 1e-12)


def test_an_output_depends_on_its_receptive_field(name):
    body, x = make(name), torch.randn(60, 1, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(body(x)[0][49].square().sum(), x)
    reached = gradient.abs().sum((1, 2)).nonzero().flatten().tolist()
    first = 0 if body.receptive_field is None else 50 - body.receptive_field
    assert reached[0] == first
    assert reached[-1] == 49


@pytest.mark.parametrize("hidden_size", [1, 2, 7])
def test_any_width_works(name, hidden_size):
    options = {"heads": 1} if name == "transformer" else {}
    body = make(name, hidden_size=hidden_size, **options)
    y, state = body(torch.randn(4, 1, 3))
    assert body(torch.randn(4, 1, 3), state)[0].shape == (4, 1, hidden_size) == y.shape


def test_single_and_mixed_precision_are_close_to_double(name):
    body, x = make(name), torch.randn(9, 2, 3)
    y, _ = body(x)
    body, x = body.float(), x.float()
    assert_close(body(x)[0].double(), y, 1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        first, state = body(x[:4])
        second, _ = body(x[4:], state)
        (first.float().sum() + second.float().sum()).backward()
    assert_close(torch.cat([first, second]).double(), y, 0.2)  # bfloat16 has 8 bits
    assert all(parameter.grad is not None for parameter in body.parameters())


def test_for_inference_is_equal(name):
    body, x = make(name), torch.randn(9, 2, 3)
    assert_close(for_inference(body)(x)[0], body(x)[0], 1e-12)
    assert all(parameter.requires_grad for parameter in body.parameters())


def test_parameters_are_made_where_asked(name):
    body = make(name, device="meta", dtype=torch.float16)
    assert {(p.device.type, p.dtype) for p in body.parameters()} == {("meta", torch.float16)}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"hidden_size": 0}, ValueError, "hidden_size must be an integer >= 1, got 0"),
        ({"num_layers": "2"}, TypeError, "num_layers must be an integer >= 1, got '2'"),
        ({"dropout": 1.0}, ValueError, r"dropout must be in \[0, 1\), got 1.0"),
        ({"droput": 0.1}, TypeError, "droput is not an option of the body .*, did you mean 'dropout'?"),
    ],
)
def test_bad_options_are_named(name, options, error, message):
    with pytest.raises(error, match=message):
        make(name, **options)


def test_sequences_shorter_than_the_tail_are_named(name):
    for call in ({}, {"lengths": [4, 2]}):
        shortest = 2 if call else 4
        with pytest.raises(ValueError, match=rf"tail must be at most {shortest} \(the shortest sequence\), got 5"):
            run_body(make(name), torch.randn(4, 2, 3), tail=5, **call)
