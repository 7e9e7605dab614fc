"""The Fast-Slow LSTM against its equations."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from loops import assert_equals_loop, normed_lstm, slow_stack
from trellisnet.baselines.fast_slow_lstm import FastSlowLstmBody


def slow(body, x, state):
    def zoneout(old, new, share):
        kept = (torch.rand_like(new) < share).to(new) if body.training and share else share
        return kept * old + (1 - kept) * new

    def lstm(cell, pre, h, c):
        gates = (pre + h @ cell.hidden.weight.t() + cell.hidden.bias).chunk(4, -1)
        out, new = normed_lstm(cell.gates, gates, c)
        return zoneout(h, out, body.zoneout_hidden), zoneout(c, new, body.zoneout_memory)

    def step(layer, x, states, mask):
        h, c, k, m = states
        h, c = lstm(layer.fast[0], x @ layer.from_input.weight.t(), h, c)
        k, m = lstm(layer.slow, F.dropout(h, body.dropout, body.training) @ layer.from_fast.weight.t(), k, m)
        h, c = lstm(layer.fast[1], F.dropout(k, body.dropout, body.training) @ layer.from_slow.weight.t(), h, c)
        for cell in layer.fast[2:]:
            h, c = lstm(cell, 0, h, c)
        return h, (h, c, k, m)

    return slow_stack(step, body, x, state)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [
        (1, 1, {}),
        (7, 3, {"num_layers": 4, "output_size": 4, "slow_size": 3}),
        (5, 2, {"dropout": 0.3, "zoneout_hidden": 0.2, "zoneout_memory": 0.5}),
    ],
)
def test_outputs_states_and_gradients_are_those_of_the_equations(steps, batch, options, training):
    body = FastSlowLstmBody(3, hidden_size=6, **options).train(training)
    for parameter in body.parameters():  # gains of 1 and biases of 0 would hide a wrong one
        nn.init.uniform_(parameter, -0.8, 0.8)
    assert_equals_loop(body, slow, steps, batch)


def test_a_slow_cell_needs_fast_cells_on_both_sides():
    with pytest.raises(ValueError, match="num_layers must be an integer >= 2, got 1"):
        FastSlowLstmBody(3, hidden_size=4, num_layers=1)
