"""The relational memory core (Santoro et al., Relational Recurrent Neural Networks, NeurIPS 2018).

r = V x_t                                  M: the slots of the memory, one per row
A = attention of M over [M; r]             q, k, v = LN(linear map of the rows), several heads
N = LN(M + A)      Q = LN(N + mlp(N))      i, f = G r + K tanh(M) + b
M_t = sigmoid(i) tanh(Q) + sigmoid(f) M    the output is M_t, all slots side by side
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.baselines.steps import RecurrentBody, RecurrentLayer, StackOptions, States, Step
from trellisnet.core.checks import positive_int

MOST_HEADS = 4  # by default


@dataclass(eq=False, repr=False)
class RelationalMemoryOptions(StackOptions):
    """The options of a relational memory core.

    Args:
        hidden_size: channels of a slot.
        output_size: channels of a linear map of all slots; default `hidden_size`.
        slots: number of slots of the memory.
        heads: number of heads of the attention, a divisor of `hidden_size`; default the largest one up to 4.
    """

    slots: int = 4
    heads: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.slots = positive_int("slots", self.slots)
        divisors = [n for n in range(1, MOST_HEADS + 1) if self.hidden_size % n == 0]
        self.heads = positive_int("heads", divisors[-1] if self.heads is None else self.heads)
        if self.hidden_size % self.heads:
            raise ValueError(f"heads must divide hidden_size = {self.hidden_size}, got {self.heads}")


class RelationalMemoryLayer(RecurrentLayer):
    """A relational memory core. Its state is the memory (slots, B, size)."""

    def __init__(self, input_size: int, options: RelationalMemoryOptions, where: dict[str, Any]) -> None:
        super().__init__()
        size = options.hidden_size
        assert options.heads is not None
        self.slots, self.size, self.heads = options.slots, size, options.heads
        self.input = nn.Linear(input_size, size, **where)
        self.qkv = nn.Sequential(nn.Linear(size, 3 * size, **where), nn.LayerNorm(3 * size, **where))
        self.mlp = nn.Sequential(nn.Linear(size, size, **where), nn.ReLU(), nn.Linear(size, size, **where))
        self.attended_norm, self.mlp_norm = nn.LayerNorm(size, **where), nn.LayerNorm(size, **where)
        self.input_gates = nn.Linear(size, 2 * size, **where)
        self.memory_gates = nn.Linear(size, 2 * size, bias=False, **where)
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        nn.init.ones_(self.input_gates.bias[size:])  # the forget gate

    def start(self, x: Tensor) -> States:
        """Unequal slots: the rows of an identity matrix."""
        eye = torch.eye(self.slots, self.size, device=x.device, dtype=x.dtype)
        return (eye.unsqueeze(1).expand(-1, x.shape[1], -1).contiguous(),)

    def begin(self, x: Tensor) -> tuple[Tensor, Step]:
        r = self.input(x)  # (T, B, size)
        read = torch.cat([self.input_gates(r), self.qkv(r)[..., self.size :]], -1)

        def step(read: Tensor, states: States) -> tuple[Tensor, States]:
            (memory,) = states  # (slots, B, size)
            gates, key_value = read.split(2 * self.size, -1)
            query, own = self.qkv(memory).split([self.size, 2 * self.size], -1)
            keys, values = torch.cat([own, key_value.unsqueeze(0)]).chunk(2, -1)  # (slots + 1, B, size)
            query, keys, values = (self._by_head(rows) for rows in (query, keys, values))
            attended = F.scaled_dot_product_attention(query, keys, values)  # (B, heads, slots, channels)
            attended = attended.permute(2, 0, 1, 3).flatten(2)
            changed = self.attended_norm(memory + attended)
            changed = self.mlp_norm(changed + self.mlp(changed))
            i, f = (gates + self.memory_gates(memory.tanh())).sigmoid().chunk(2, -1)
            memory = i * changed.tanh() + f * memory
            return memory.transpose(0, 1).flatten(1), (memory,)

        return read, step

    def _by_head(self, rows: Tensor) -> Tensor:
        """Split the channels of rows (n, B, size) between the heads: (B, heads, n, channels)."""
        heads: Tensor = rows.unflatten(-1, (self.heads, -1))
        return heads.permute(1, 2, 0, 3)


class RelationalMemoryBody(RecurrentBody, RelationalMemoryOptions):
    """A relational memory core as a body. Its state is the memory (layers * slots, B, size)."""

    @property
    def features(self) -> int:
        return self.slots * self.hidden_size

    def build(self, where: dict[str, Any]) -> None:
        self.stack(lambda size: RelationalMemoryLayer(size, self, where))
