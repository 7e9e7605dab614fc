"""The relational memory core against its equations."""

import math

import pytest
import torch
from torch import nn

from loops import assert_equals_loop, normalised, slow_stack
from reference import assert_close
from trellisnet.baselines.relational_memory import RelationalMemoryBody


def norm(values, module):
    return normalised(values, 1e-5) * module.weight + module.bias


def linear(x, module):
    return x @ module.weight.t() + module.bias


def slow(body, x, state):
    size, width = body.hidden_size, body.hidden_size // body.heads

    def core(layer, x, memory):
        """One sequence: x (C) and memory (slots, size)."""
        r = linear(x, layer.input)
        rows = torch.cat([memory, r[None]])
        q, k, v = norm(linear(rows, layer.qkv[0]), layer.qkv[1]).split(size, -1)
        heads = []
        for head in range(body.heads):
            own = slice(head * width, (head + 1) * width)
            weights = (q[:, own] @ k[:, own].t() / math.sqrt(width)).softmax(-1)
            heads.append(weights @ v[:, own])
        rows = norm(rows + torch.cat(heads, -1), layer.attended_norm)
        rows = norm(rows + linear(linear(rows, layer.mlp[0]).relu(), layer.mlp[2]), layer.mlp_norm)
        gates = linear(r, layer.input_gates) + memory.tanh() @ layer.memory_gates.weight.t()
        return gates[:, :size].sigmoid() * rows[:-1].tanh() + gates[:, size:].sigmoid() * memory

    def step(layer, x, states, mask):
        memory = states[0].unflatten(0, (-1, len(x))) if states[0].dim() == 2 else states[0]
        memory = torch.stack([core(layer, row, memory[:, b]) for b, row in enumerate(x)], 1)
        return memory.transpose(0, 1).flatten(1), (memory,)

    return slow_stack(step, body, x, state)


@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [
        (1, 1, {"slots": 1}),
        (4, 3, {"num_layers": 2, "output_size": 4, "slots": 2, "heads": 3}),
        (3, 2, {"slots": 7, "heads": 1, "num_layers": 2, "dropout": 0.3}),
    ],
)
def test_outputs_states_and_gradients_are_those_of_the_equations(steps, batch, options):
    body = RelationalMemoryBody(3, hidden_size=6, **options)
    for parameter in body.parameters():  # gains of 1 and biases of 0 would hide a wrong one
        nn.init.uniform_(parameter, -0.8, 0.8)
    start = torch.eye(body.slots, 6)[:, None].expand(-1, batch, -1).repeat(body.num_layers, 1, 1)
    assert_equals_loop(body, slow, steps, batch, start=(start,))


def test_sizes_and_start():
    body = RelationalMemoryBody(3, hidden_size=6)
    assert (body.slots, body.heads, body.features, body.output_size) == (4, 3, 24, 6)
    y, (memory,) = body(torch.randn(2, 5, 3))
    assert (tuple(y.shape), tuple(memory.shape)) == ((2, 5, 6), (4, 5, 6))
    assert RelationalMemoryBody(3, hidden_size=7).heads == 1
    assert_close(body.layers[0].input_gates.bias, torch.cat([torch.zeros(6), torch.ones(6)]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": 0}, "slots must be an integer >= 1, got 0"),
        ({"heads": 4}, "heads must divide hidden_size = 6, got 4"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        RelationalMemoryBody(3, hidden_size=6, **options)
