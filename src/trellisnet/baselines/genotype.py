"""Recurrent cells found by search, from their genotypes: ENAS (Pham, Guan, Zoph, Le, Dean, ICML 2018) and DARTS (Liu,
Simonyan, Yang, ICLR 2019).

c, g = W x_t + U h_{t-1}       s_0 = h_{t-1} + sigmoid(c) (tanh(g) - h_{t-1})
c, g = W_i s_p                 s_i = s_p + sigmoid(c) (f_i(g) - s_p)        h_t = mean of some s_i

A genotype names for each node i = 1, 2, ... its activation f_i and the node p < i that it reads, and then the nodes of
the mean. Variational dropout multiplies h_{t-1} and every s_p in the products by the same mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.baselines.steps import (
    HiddenDropoutOptions,
    RecurrentBody,
    RecurrentLayer,
    States,
    Step,
    masked,
    sequence_mask,
)
from trellisnet.core.checks import one_of


class Genotype(NamedTuple):
    """A cell: activation and predecessor of each node, and the nodes whose mean is the output."""

    nodes: list[tuple[str, int]]
    mean: list[int]


def _genotype(nodes: str, mean: list[int]) -> Genotype:
    words = nodes.split()
    return Genotype([(name, int(p)) for name, p in zip(words[::2], words[1::2], strict=True)], mean)


DARTS = {
    "V1": _genotype("relu 0 relu 1 tanh 2 relu 3 relu 4 identity 1 relu 5 relu 1", [1, 2, 3, 4, 5, 6, 7, 8]),
    "V2": _genotype("sigmoid 0 relu 1 relu 1 identity 1 tanh 2 sigmoid 5 tanh 3 relu 5", [1, 2, 3, 4, 5, 6, 7, 8]),
}
ENAS = _genotype("tanh 0 tanh 1 relu 1 tanh 3 tanh 3 relu 3 relu 4 relu 7 relu 8 relu 8 relu 8", [2, 5, 6, 9, 10, 11])
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "identity": lambda g: g,
}


class GenotypeLayer(RecurrentLayer):
    """A layer of the cell of a genotype."""

    def __init__(
        self, input_size: int, hidden_size: int, genotype: Genotype, hidden_dropout: float, where: dict[str, Any]
    ) -> None:
        super().__init__()
        self.genotype, self.hidden_dropout = genotype, hidden_dropout
        bound = 1 / math.sqrt(hidden_size)

        def uniform(*size: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*size, **where).uniform_(-bound, bound))

        self.w = uniform(2 * hidden_size, input_size)
        self.u = uniform(hidden_size, 2 * hidden_size)
        self.nodes = uniform(len(genotype.nodes), hidden_size, 2 * hidden_size)

    def start(self, x: Tensor) -> States:
        return (x.new_zeros(x.shape[1], len(self.u)),)

    def begin(self, x: Tensor) -> tuple[Tensor, Step]:
        mask = sequence_mask(x, len(self.u), self.hidden_dropout if self.training else 0.0)
        nodes = [
            (weight, ACTIVATIONS[name], p)
            for weight, (name, p) in zip(self.nodes.unbind(), self.genotype.nodes, strict=True)
        ]

        def step(a: Tensor, states: States) -> tuple[Tensor, States]:
            (h,) = states
            c, g = (a + masked(h, mask) @ self.u).to(h.dtype).chunk(2, -1)  # autocast changes the dtype of products
            values = [torch.lerp(h, g.tanh(), c.sigmoid())]
            for weight, activation, p in nodes:
                c, g = (masked(values[p], mask) @ weight).to(h.dtype).chunk(2, -1)
                values.append(torch.lerp(values[p], activation(g), c.sigmoid()))
            h = torch.stack([values[node] for node in self.genotype.mean]).mean(0)
            return h, (h,)

        return F.linear(x, self.w), step


class GenotypeBody(RecurrentBody, HiddenDropoutOptions):
    """The common base of `EnasBody` and `DartsBody`. The state is the hidden state (layers, B, H)."""

    def build(self, where: dict[str, Any]) -> None:
        chosen = self._cell()
        self.stack(lambda size: GenotypeLayer(size, self.hidden_size, chosen, self.hidden_dropout, where))

    def _cell(self) -> Genotype:
        raise TypeError(f"{type(self).__name__} does not define _cell()")


class EnasBody(GenotypeBody):
    """The cell that ENAS found on Penn Treebank, as a body."""

    def _cell(self) -> Genotype:
        return ENAS


@dataclass(eq=False, repr=False)
class DartsOptions(HiddenDropoutOptions):
    """The options of the cells that DARTS found.

    Args:
        genotype: "V1", found with the first-order approximation, or "V2", with the second-order one.
    """

    genotype: str = "V2"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.genotype = one_of("genotype", self.genotype, DARTS)


class DartsBody(GenotypeBody, DartsOptions):
    """A cell that DARTS found on Penn Treebank, as a body."""

    def _cell(self) -> Genotype:
        return DARTS[self.genotype]
