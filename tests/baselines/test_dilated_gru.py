"""The dilated GRU against its equations."""

import pytest
import torch
from torch.nn import functional as F

from loops import assert_equals_loop
from trellisnet.baselines.dilated_gru import DilatedGruBody


def slow(body, x, state):
    after = []
    for index, (gru, past) in enumerate(zip(body.layers, state, strict=True)):
        if index:
            x = x * F.dropout(torch.ones_like(x[0]), body.dropout)
        hidden = list(past)
        for row in x:
            h = hidden[-(2**index)]
            a = (row @ gru.weight_ih_l0.t() + gru.bias_ih_l0).chunk(3, -1)
            b = (h @ gru.weight_hh_l0.t() + gru.bias_hh_l0).chunk(3, -1)
            r, z = (a[0] + b[0]).sigmoid(), (a[1] + b[1]).sigmoid()
            hidden.append((1 - z) * (a[2] + r * b[2]).tanh() + z * h)
        x = torch.stack(hidden[2**index :])
        after.append(torch.stack(hidden[-(2**index) :]))
    return x if body.down is None else x @ body.down.weight.t() + body.down.bias, tuple(after)


@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [
        (1, 1, {"num_layers": 1}),
        (7, 3, {"num_layers": 3, "output_size": 4}),
        (11, 1, {"num_layers": 5, "dropout": 0.3}),
    ],
)
def test_outputs_states_and_gradients_are_those_of_the_equations(steps, batch, options):
    assert_equals_loop(DilatedGruBody(2, hidden_size=5, **options), slow, steps, batch)


def test_the_state_of_a_layer_is_as_long_as_its_dilation():
    _, state = DilatedGruBody(2, hidden_size=3)(torch.randn(4, 2, 2))
    assert [tuple(rows.shape) for rows in state] == [(2**layer, 2, 3) for layer in range(9)]
