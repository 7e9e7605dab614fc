"""The linear recurrent unit (Orvieto et al., 2023): a diagonal complex recurrence in residual blocks.

LRU    s_t = lambda s_{t-1} + gamma B x_t      y_t = Re(C s_t) + D x_t    B and C are matrices, the others diagonal
lambda = exp(-exp(nu) + i exp(theta)), so that |lambda| < 1
gamma = exp(g), at first sqrt(1 - |lambda|^2), so that s has the scale of B x
Block  u = dropout(gelu(LRU(norm(x))))         y = x + dropout((W u + b) sigmoid(V u + c))

Where widths differ, the first block reads a linear map of the input. A last normalisation follows the last block.

A. Orvieto, S. L. Smith, A. Gu, A. Fernando, C. Gulcehre, R. Pascanu, S. De: Resurrecting Recurrent Neural Networks for
Long Sequences. ICML 2023, arXiv:2303.06349.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.baselines.base import BaselineOptions
from trellisnet.baselines.scan import ScanBody, scan
from trellisnet.core.checks import positive, positive_int, probability


@dataclass(eq=False, repr=False)
class LruOptions(BaselineOptions):
    """The options of a stack of linear recurrent units.

    Args:
        num_layers: number of blocks.
        state_size: complex numbers in the state of a block; default hidden_size.
        min_radius: lower bound of |lambda| at the start of training, in [0, 1).
        max_radius: upper bound of |lambda| at the start of training, in (0, 1).
        max_phase: upper bound of the angle of lambda at the start of training; small for long memories.
        dropout: after the recurrence, and on what a block adds to its input.
    """

    num_layers: int = 4
    state_size: int | None = None
    min_radius: float = 0.5
    max_radius: float = 0.99
    max_phase: float = 2 * math.pi
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.state_size = positive_int("state_size", self.hidden_size if self.state_size is None else self.state_size)
        self.min_radius = probability("min_radius", self.min_radius)
        self.max_radius = probability("max_radius", self.max_radius)
        if self.max_radius <= self.min_radius:
            raise ValueError(f"max_radius must be above min_radius = {self.min_radius}, got {self.max_radius}")
        self.max_phase = positive("max_phase", self.max_phase)
        self.dropout = probability("dropout", self.dropout)


class LinearRecurrentUnit(nn.Module):
    """The recurrence of a block. All parameters are real: a complex matrix is one of twice the width."""

    def __init__(self, options: LruOptions, where: dict[str, Any]) -> None:
        super().__init__()
        width, size = options.hidden_size, options.state_size or options.hidden_size
        low, high = options.min_radius**2, options.max_radius**2
        squared = low + (high - low) * torch.rand(size, **where).clamp_min(1e-6)  # uniform on the ring
        phase = options.max_phase * torch.rand(size, **where).clamp_min(1e-6)  # above 0, because of the logarithm
        self.nu = nn.Parameter((-0.5 * squared.log()).log())
        self.theta = nn.Parameter(phase.log())
        self.gamma = nn.Parameter(0.5 * torch.log1p(-squared))
        self.read = nn.Parameter(torch.randn(2 * size, width, **where) / math.sqrt(2 * width))  # B
        self.write = nn.Parameter(torch.randn(width, 2 * size, **where) / math.sqrt(size))  # the conjugate of C
        self.through = nn.Parameter(torch.randn(width, **where))  # D

    def forward(self, x: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the outputs (T, B, H) and the states (T, B, N, 2), real and imaginary, from a state (B, N, 2)."""
        decay = torch.polar((-self.nu.exp()).exp(), self.theta.exp())  # (N)
        inner = F.linear(x, self.read).to(self.nu.dtype).unflatten(-1, (-1, 2))  # no complex numbers of half precision
        inner = inner * self.gamma.exp().unsqueeze(-1)
        states = scan(decay, torch.view_as_complex(inner), None if first is None else torch.view_as_complex(first))
        parts = torch.view_as_real(states)  # (T, B, N, 2)
        return F.linear(parts.flatten(-2), self.write) + self.through * x, parts


class LruBlock(nn.Module):
    """A linear recurrent unit and a gated linear unit, with a connection around them."""

    def __init__(self, options: LruOptions, where: dict[str, Any]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(options.hidden_size, **where)
        self.unit = LinearRecurrentUnit(options, where)
        self.gates = nn.Linear(options.hidden_size, 2 * options.hidden_size, **where)
        self.dropout = options.dropout

    def forward(self, x: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the outputs (T, B, H) and the states (T, B, N, 2), from a state (B, N, 2)."""
        y, states = self.unit(self.norm(x), first)
        y = self.gates(F.dropout(F.gelu(y), self.dropout, self.training))
        return x + F.dropout(F.glu(y), self.dropout, self.training), states


class LruBody(ScanBody, LruOptions):
    """A stack of linear recurrent units as a body. Its state is (layers, B, N, 2): real and imaginary parts.

    >>> body = LruBody(3, hidden_size=8, state_size=5)
    >>> y, state = body(torch.randn(10, 2, 3))
    >>> tuple(y.shape), tuple(state.shape)
    ((10, 2, 8), (4, 2, 5, 2))
    """

    state_size: int

    def build(self, where: dict[str, Any]) -> None:
        self.stack(lambda: LruBlock(self, where), where)
