"""Attention over the states of an encoder: dot products, in several heads."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.core.checks import positive_int
from trellisnet.core.matmul import Linear

Source = tuple[Tensor, Tensor, Tensor]  # keys and values (S, B, D), and a mask (S, B) that is False at padding


class ReadingHead(nn.Module):
    """Multi-head attention of decoder states (T, B, D) over encoder states (S, B, N).

    Args:
        width: channels D of queries and results.
        states: channels N of the encoder's states.
        heads: number of heads, a divisor of D.

    Raises:
        ValueError: the heads do not divide the width.
    """

    def __init__(self, width: int, states: int, heads: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.heads = positive_int("attention_heads", heads)
        if width % heads:
            raise ValueError(f"attention_heads must divide the body's output_size = {width}, got {heads}")
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.query = Linear(width, width, bias=False, **place)
        self.key_value = Linear(states, 2 * width, bias=False, **place)
        self.out = Linear(width, width, bias=False, **place)

    def read(self, states: Tensor, inside: Tensor) -> Source:
        """Map encoder states to keys and values, once per sentence."""
        keys, values = self.key_value(states).chunk(2, dim=-1)
        return keys, values, inside

    def forward(self, x: Tensor, source: Source) -> Tensor:
        """Return what each step of x (T, B, D) reads from the source."""
        keys, values, inside = source
        mask = inside.t()[:, None, None]  # (B, 1, 1, S)
        query, key, value = (self._split(each) for each in (self.query(x), keys, values))
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        together: Tensor = self.out(found.permute(2, 0, 1, 3).flatten(2))
        return together

    def weights(self, x: Tensor, source: Source) -> Tensor:
        """Return the attention weights (B, heads, T, S)."""
        keys, _, inside = source
        query, key = self._split(self.query(x)), self._split(keys)
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        shares: Tensor = scores.masked_fill(~inside.t()[:, None, None], -torch.inf).softmax(dim=-1)
        return shares

    def _split(self, x: Tensor) -> Tensor:
        """(T, B, D) as (B, heads, T, D / heads)."""
        return x.view(*x.shape[:2], self.heads, -1).permute(1, 2, 0, 3)
