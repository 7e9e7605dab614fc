"""The HyperLSTM against its equations."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from loops import assert_equals_loop, normed_lstm, slow_stack
from trellisnet.baselines.hyper_lstm import HyperLstmBody


def slow(body, x, state):
    def step(layer, x, states, mask):
        h, c, k, m = states
        size, small, f = body.hidden_size, body.hyper_size, body.factor_size
        w, w_hyper = layer.input.weight.split([4 * size, 4 * small])
        u, u_hyper = layer.hidden.weight.split([4 * size, 4 * small])
        pre = torch.cat([x, h, k], -1) @ torch.cat([w_hyper, u_hyper, layer.hyper_hidden.weight], -1).t()
        k, m = normed_lstm(layer.hyper_gates, pre.chunk(4, -1), m)
        gates = []
        for gate in range(4):
            z_x, z_h, z_b = (k @ layer.z_weight[4 * f * part :][f * gate : f * (gate + 1)].t() for part in range(3))
            z_x = z_x + layer.z_bias[f * gate : f * (gate + 1)]
            z_h = z_h + layer.z_bias[4 * f :][f * gate : f * (gate + 1)]
            wx, uh = x @ w.chunk(4)[gate].t(), h @ u.chunk(4)[gate].t()
            p_x, p_h, p_b = (layer.factors[4 * part + gate] for part in range(3))
            gates.append((z_x @ p_x) * wx + (z_h @ p_h) * uh + z_b @ p_b + layer.bias[gate])
        h, c = normed_lstm(layer.gates, gates, c, body.value_dropout)
        return h, (h, c, k, m)

    return slow_stack(step, body, x, state)


@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [
        (1, 1, {}),
        (7, 3, {"num_layers": 2, "output_size": 4, "hyper_size": 3, "factor_size": 2}),
        (5, 1, {"num_layers": 2, "value_dropout": 0.4, "dropout": 0.3}),
    ],
)
def test_outputs_states_and_gradients_are_those_of_the_equations(steps, batch, options):
    body = HyperLstmBody(3, hidden_size=6, **options)
    for parameter in body.parameters():  # the initial values hide which factor is whose
        nn.init.uniform_(parameter, -0.8, 0.8)
    assert_equals_loop(body, slow, steps, batch)


def test_at_the_start_the_factors_are_equal_and_the_forget_gate_is_open():
    body = HyperLstmBody(3, hidden_size=64)
    layer = body.layers[0]
    assert body.hyper_size == 8
    z = F.pad(layer.z_bias, (0, 4 * body.factor_size)).view(12, 1, -1)
    factors = (z @ layer.factors.detach()).squeeze(1)  # if the small LSTM is silent
    assert torch.allclose(factors[:8], torch.full((8, 64), 0.1))
    assert factors[8:].eq(0).all()
    assert layer.gates.bias.sum(-1).tolist() == [0, 0, 64, 0]
