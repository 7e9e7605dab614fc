"""The minimal GRU against loops written from the equations."""

import pytest
import torch

from loops import affine, assert_equals_from_the_start, normed
from trellisnet.baselines.min_gru import MinGruBody


def slow(body, x):
    """Outputs (T, B, D) and the last states (layers, B, H)."""
    steps, last = [affine(body.up, step) for step in x], []
    for block in body.blocks:
        h, outputs = x.new_zeros(x.shape[1], body.hidden_size), []
        for step in steps:
            z, new = affine(block.gates, normed(block.norm, step)).chunk(2, -1)
            h = (1 - z.sigmoid()) * h + z.sigmoid() * new
            y = step + h
            if block.feed_forward is not None:
                norm, a, _, b = block.feed_forward
                inner = affine(a, normed(norm, y))
                y = y + affine(b, inner * 0.5 * (1 + torch.erf(inner / 2**0.5)))
            outputs.append(y)
        steps = outputs
        last.append(h)
    y = normed(body.norm, torch.stack(steps))
    return affine(body.down, y), torch.stack(last)


@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [
        (1, 1, {"num_layers": 1}),
        (11, 2, {"output_size": 4}),
        (9, 1, {"input_size": 5, "num_layers": 2, "feed_forward": 0}),
    ],
)
def test_outputs_states_and_gradients_are_those_of_the_equations(steps, batch, options):
    body = MinGruBody(**{"input_size": 3, "hidden_size": 5, **options})
    assert_equals_from_the_start(body, slow, steps, batch)
