"""The linear recurrent unit against loops written from the equations, in real arithmetic."""

import pytest
import torch

from loops import affine, assert_equals_from_the_start, normed
from reference import assert_close
from trellisnet.baselines.lru import LruBody


def slow(body, x):
    """Outputs (T, B, D) and the last states (layers, B, N, 2)."""
    steps, last = [affine(body.up, step) for step in x], []
    for block in body.blocks:
        unit = block.unit
        radius, angle, gamma = (-unit.nu.exp()).exp(), unit.theta.exp(), unit.gamma.exp()
        lambda_real, lambda_imaginary = radius * angle.cos(), radius * angle.sin()
        real = imaginary = x.new_zeros(x.shape[1], body.state_size)
        outputs = []
        for step in steps:
            u = normed(block.norm, step)
            real, imaginary = (
                lambda_real * real - lambda_imaginary * imaginary + gamma * (u @ unit.read[0::2].t()),
                lambda_real * imaginary + lambda_imaginary * real + gamma * (u @ unit.read[1::2].t()),
            )
            # Re(C s) with C = write[:, 0::2] - i write[:, 1::2]
            y = real @ unit.write[:, 0::2].t() + imaginary @ unit.write[:, 1::2].t() + unit.through * u
            value, gate = affine(block.gates, y * 0.5 * (1 + torch.erf(y / 2**0.5))).chunk(2, -1)
            outputs.append(step + value * gate.sigmoid())
        steps = outputs
        last.append(torch.stack([real, imaginary], -1))
    y = normed(body.norm, torch.stack(steps))
    return affine(body.down, y), torch.stack(last)


@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [
        (1, 1, {"num_layers": 1}),
        (11, 2, {"output_size": 4, "state_size": 7}),
        (9, 1, {"input_size": 5, "num_layers": 2, "state_size": 1}),
    ],
)
def test_outputs_states_and_gradients_are_those_of_the_equations(steps, batch, options):
    body = LruBody(**{"input_size": 3, "hidden_size": 5, **options})
    assert_equals_from_the_start(body, slow, steps, batch)


def test_the_recurrence_begins_on_the_ring():
    body = LruBody(3, hidden_size=300, num_layers=1, min_radius=0.6, max_radius=0.8, max_phase=0.3)
    unit = body.blocks[0].unit
    radius, angle = (-unit.nu.exp()).exp(), unit.theta.exp()
    assert 0.6 <= radius.min() < 0.61
    assert 0.79 < radius.max() <= 0.8
    assert 0 < angle.min() < 0.01
    assert 0.29 < angle.max() <= 0.3
    assert_close(unit.gamma.exp().square() + radius.square(), torch.ones(300))


def test_a_state_keeps_the_scale_of_the_input():
    body = LruBody(300, hidden_size=300, num_layers=1, max_radius=0.999)
    unit = body.blocks[0].unit
    _, states = unit(torch.randn(4000, 1, 300), None)
    assert states[2000:].square().sum(-1).mean().item() == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_radius": 0.9, "max_radius": 0.5}, "max_radius must be above min_radius = 0.9, got 0.5"),
        ({"max_radius": 1.0}, r"max_radius must be in \[0, 1\), got 1.0"),
        ({"max_phase": 0.0}, "max_phase must be a number > 0, got 0.0"),
        ({"state_size": 0}, "state_size must be an integer >= 1, got 0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        LruBody(3, hidden_size=4, **options)
