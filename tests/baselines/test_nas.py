"""The cell found by neural architecture search against its equations."""

import pytest
import torch

from loops import assert_equals_loop, slow_stack
from trellisnet.baselines.nas import NasBody


def slow(body, x, state):
    def step(layer, x, states, mask):
        h, c = states
        a, b = (x @ layer.w.t()).chunk(8, -1), ((h * mask) @ layer.u.t()).chunk(8, -1)
        activations = [torch.sigmoid, torch.relu, torch.sigmoid, None] + [torch.tanh, torch.sigmoid] * 2
        values = [None if f is None else f(p + q) for f, p, q in zip(activations, a, b, strict=True)]
        values[3] = torch.relu(a[3] * b[3])
        m = [torch.tanh(values[0] * values[1]), torch.tanh(values[2] + values[3])]
        m += [torch.tanh(values[4] * values[5]), torch.sigmoid(values[6] + values[7])]
        c = torch.tanh(m[0] + c) * m[1]
        h = torch.tanh(c * torch.tanh(m[2] + m[3]))
        return h, (h, c)

    return slow_stack(step, body, x, state)


@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [(1, 1, {}), (7, 3, {"num_layers": 2, "output_size": 4, "hidden_dropout": 0.4, "dropout": 0.3})],
)
def test_outputs_states_and_gradients_are_those_of_the_equations(steps, batch, options):
    assert_equals_loop(NasBody(3, hidden_size=6, **options), slow, steps, batch)
