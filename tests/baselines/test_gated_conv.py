"""The gated convolutional network against loops written from the equations."""

import pytest
import torch

from loops import affine, assert_equals_from_the_start, convolved
from reference import assert_close
from trellisnet.baselines.gated_conv import GatedConvBody


def gated(convolution, steps):
    """(W * x + b) sigmoid(V * x + c)."""
    halves = [pre.chunk(2, -1) for pre in convolved(convolution, steps)]
    return [value * gate.sigmoid() for value, gate in halves]


def slow(body, x):
    steps = list(x)
    for block in body.blocks:
        inner = steps
        for layer in (block.narrow, block.convolution, block.wide):
            inner = inner if layer is None else gated(layer, inner)
        old = [affine(block.skip, step) for step in steps]
        steps = [a + b for a, b in zip(inner, old, strict=True)]
    return affine(body.down, torch.stack(steps)), None


@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [
        (1, 1, {"num_layers": 1}),
        (11, 2, {"num_layers": 3, "output_size": 4}),
        (9, 1, {"num_layers": 2, "kernel_size": 2, "bottleneck": 2}),
        (6, 3, {"num_layers": 2, "kernel_size": 1, "bottleneck": 9}),
    ],
)
def test_outputs_and_gradients_are_those_of_the_equations(steps, batch, options):
    body = GatedConvBody(3, hidden_size=5, **options)
    assert_equals_from_the_start(body, slow, steps, batch)


def test_a_bottleneck_is_a_fraction_of_the_width():
    block = GatedConvBody(8, hidden_size=8, bottleneck=4).blocks[0]
    assert [tuple(layer.weight.shape) for layer in (block.narrow, block.convolution, block.wide)] == [
        (1, 8, 4),
        (4, 2, 4),
        (1, 2, 16),
    ]


def test_the_last_steps_are_computed_from_those_they_depend_on():
    body, x = GatedConvBody(3, hidden_size=5, num_layers=2), torch.randn(30, 2, 3)
    seen = []
    body.blocks[0].register_forward_pre_hook(lambda module, arguments: seen.append(len(arguments[0])))
    assert_close(body(x, tail=2)[0], body(x)[0][-2:], 1e-12)
    assert seen == [8, 30]
