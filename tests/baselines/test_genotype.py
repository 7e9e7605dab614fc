"""The cells of ENAS and DARTS against their equations."""

import pytest
import torch

from loops import assert_equals_loop, slow_stack
from trellisnet.baselines.genotype import DartsBody, EnasBody

# node i, its predecessor and its activation, and the nodes of the mean, as the papers draw them
V1 = ["1 0 relu", "2 1 relu", "3 2 tanh", "4 3 relu", "5 4 relu", "6 1 identity", "7 5 relu", "8 1 relu"]
V2 = ["1 0 sigmoid", "2 1 relu", "3 1 relu", "4 1 identity", "5 2 tanh", "6 5 sigmoid", "7 3 tanh", "8 5 relu"]
FOUND = ["1 0 tanh", "2 1 tanh", "3 1 relu", "4 3 tanh", "5 3 tanh", "6 3 relu", "7 4 relu", "8 7 relu", "9 8 relu"]
FOUND += ["10 8 relu", "11 8 relu"]


def slow(cell, mean):
    def step(layer, x, states, mask):
        (h,) = states
        size = h.shape[-1]
        pre = x @ layer.w.t() + (h * mask) @ layer.u
        values = {0: h + pre[:, :size].sigmoid() * (pre[:, size:].tanh() - h)}
        for line in cell:
            node, p, name = line.split()
            s = values[int(p)]
            pre = (s * mask) @ layer.nodes[int(node) - 1]
            new = pre[:, size:] if name == "identity" else getattr(torch, name)(pre[:, size:])
            values[int(node)] = s + pre[:, :size].sigmoid() * (new - s)
        h = sum(values[node] for node in mean) / len(mean)
        return h, (h,)

    return lambda body, x, state: slow_stack(step, body, x, state)


CELLS = {
    "V1": (lambda **options: DartsBody(3, genotype="V1", **options), slow(V1, range(1, 9))),
    "V2": (lambda **options: DartsBody(3, **options), slow(V2, range(1, 9))),
    "ENAS": (lambda **options: EnasBody(3, **options), slow(FOUND, [2, 5, 6, 9, 10, 11])),
}


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [(1, 1, {}), (5, 3, {"num_layers": 2, "output_size": 4, "hidden_dropout": 0.4, "dropout": 0.3})],
)
def test_outputs_states_and_gradients_are_those_of_the_equations(name, steps, batch, options):
    make, equations = CELLS[name]
    assert_equals_loop(make(hidden_size=6, **options), equations, steps, batch)


def test_an_unknown_genotype_is_named():
    with pytest.raises(ValueError, match="genotype must be one of 'V1', 'V2', got 'v1'"):
        DartsBody(3, hidden_size=4, genotype="v1")
