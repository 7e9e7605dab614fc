"""The temporal convolutional network against loops written from the equations."""

import pytest
import torch

from loops import affine, assert_equals_from_the_start, convolved
from reference import assert_close, gradients
from trellisnet.baselines.tcn import TcnBody


def slow(body, x):
    steps = list(x)
    for i, block in enumerate(body.blocks):
        inner = [pre.clamp_min(0) for pre in convolved(block.first, steps, 2**i)]
        new = [pre.clamp_min(0) for pre in convolved(block.second, inner, 2**i)]
        old = [affine(block.skip, step) for step in steps]
        steps = [(a + b).clamp_min(0) for a, b in zip(new, old, strict=True)]
    return affine(body.down, torch.stack(steps)), None


@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [
        (1, 1, {"num_layers": 1}),
        (23, 2, {"num_layers": 4, "output_size": 4}),
        (11, 1, {"num_layers": 2, "kernel_size": 4}),
        (6, 3, {"num_layers": 2, "kernel_size": 1}),
    ],
)
def test_outputs_and_gradients_are_those_of_the_equations(steps, batch, options):
    body = TcnBody(3, hidden_size=5, **options)
    assert_equals_from_the_start(body, slow, steps, batch)


@pytest.mark.parametrize("steps", [1, 2, 13, 16, 40])
@pytest.mark.parametrize("kernel_size", [1, 2, 3])
@pytest.mark.parametrize("goes_on", [False, True])
def test_the_last_step_alone_is_exact(steps, kernel_size, goes_on):
    body = TcnBody(3, hidden_size=5, num_layers=3, kernel_size=kernel_size, output_size=2)
    x, state = torch.randn(steps, 2, 3, requires_grad=True), None
    if goes_on:
        _, state = body(torch.randn(7, 2, 3))
    last, whole = body(x, state, tail=1)[0], body(x, state)[0][-1:]
    assert_close(last, whole, 1e-12)
    tensors = [x, *body.parameters()]
    assert_close(gradients(last, *tensors), gradients(whole, *tensors), 1e-12)


def test_the_last_step_alone_costs_less():
    body, x = TcnBody(3, hidden_size=5, num_layers=6), torch.randn(64, 2, 3)
    rows = []
    for block in body.blocks:
        for convolution in (block.first, block.second):
            run = convolution.convolve
            convolution.convolve = lambda given, d, run=run: rows.append(len(given)) or run(given, d)
    body(x, tail=1)
    # every second step of the block below, and the two steps before the first
    assert rows == [n + 2 for n in (64, 64, 32, 32, 16, 16, 8, 8, 4, 4, 2, 2)]


def test_dropout_acts_in_training_only():
    body, x = TcnBody(3, hidden_size=50, dropout=0.5), torch.randn(9, 2, 3)
    assert not torch.equal(body(x)[0], body(x)[0])
    body.eval()
    assert torch.equal(body(x)[0], body(x)[0])
