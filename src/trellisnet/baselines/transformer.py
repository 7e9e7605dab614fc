"""A causal transformer with pre-normalisation, rotary positions and a sliding window.

Block   y = x + O attention(norm(x))    then y + B gelu(A norm(y) + a) + b, norm a layer normalisation
Head    q_t, k_t, v_t = R_t Q x_t, R_t K x_t, V x_t, R_t rotates pairs of channels by angles proportional to t
attention_t = sum_s softmax_s(q_t k_s / sqrt(d)) v_s    over the steps t - window < s <= t, d channels per head

Only differences of positions count in q_t k_s. Keys are cached before they are rotated, and every call counts its steps
anew, so that the angles stay small in a stream without end. Where widths differ, the first block reads a linear map of
the input. A last normalisation follows the last block.

A. Vaswani et al.: Attention Is All You Need. NeurIPS 2017, arXiv:1706.03762. Pre-normalisation: R. Xiong et al., ICML
2020, arXiv:2002.04745. Rotary positions: J. Su et al., arXiv:2104.09864.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.baselines.base import Baseline, BaselineOptions, last_steps, without_padding
from trellisnet.core.checks import positive_int, probability
from trellisnet.core.matmul import Linear

SLOWEST = 10000.0  # steps per radian of the slowest rotation, as in the papers
SMALLEST_PIECE = 64  # steps whose attention is computed together
Piece = tuple[slice, slice, Tensor]  # some queries, the keys they see, and a mask


@dataclass(eq=False, repr=False)
class TransformerOptions(BaselineOptions):
    """The options of a causal transformer.

    Args:
        hidden_size: channels of every layer, a multiple of `heads`.
        num_layers: number of blocks.
        heads: number of attention heads.
        window: number of steps that attention sees, the present one included.
        feed_forward: width of the feed-forward layers, as a multiple of hidden_size.
        dropout: on what attention and feed-forward layers add to their input.
    """

    num_layers: int = 4
    heads: int = 2
    window: int = 256
    feed_forward: int = 4
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.heads = positive_int("heads", self.heads)
        if self.hidden_size % self.heads:
            raise ValueError(f"hidden_size must be a multiple of heads = {self.heads}, got {self.hidden_size}")
        self.window = positive_int("window", self.window)
        self.feed_forward = positive_int("feed_forward", self.feed_forward)
        self.dropout = probability("dropout", self.dropout)


class View(NamedTuple):
    """What attention knows of the steps: their rotations (2, keys, 1, 1, d // 2), and what each of them sees.

    Without pieces, every step sees itself and all steps of the call before it.
    """

    turns: Tensor
    pieces: list[Piece] | None = None


class Attention(nn.Module):
    """Causal attention over a sliding window."""

    def __init__(self, options: TransformerOptions, where: dict[str, Any]) -> None:
        super().__init__()
        self.heads = options.heads
        self.read = Linear(options.hidden_size, 3 * options.hidden_size, **where)
        self.write = Linear(options.hidden_size, options.hidden_size, **where)

    def forward(self, x: Tensor, cache: Tensor, view: View) -> tuple[Tensor, Tensor]:
        """Return the outputs for x (T, B, H), and the keys and values of all steps (window - 1 + T, B, 2H).

        `cache` (window - 1, B, 2H) has those of the steps before x. Without pieces in the view, x does not see them.
        """
        width = x.shape[-1]
        read = self.read(x)
        rows = torch.cat([cache, read[..., width:]])
        seen = read[..., width:] if view.pieces is None else rows
        q, k, v = (each.unflatten(-1, (self.heads, -1)) for each in (read[..., :width], *seen.chunk(2, -1)))
        q, k = rotated(q, *view.turns[:, len(k) - len(q) :]), rotated(k, *view.turns)
        q, k, v = (each.permute(1, 2, 0, 3) for each in (q, k, v))  # (B, heads, T, d)
        if view.pieces is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = torch.cat([attend(q, k, v, *piece) for piece in view.pieces], 2)
        return self.write(y.permute(2, 0, 1, 3).flatten(2)), rows


def rotations(steps: int, size: int, like: Tensor) -> Tensor:
    """Cosine and sine of the angle of each pair of a head's channels at each step: (2, T, 1, 1, size // 2)."""
    half = size // 2
    dtype = torch.promote_types(like.dtype, torch.float32)  # half precision cannot count the steps
    speeds = SLOWEST ** (-torch.arange(half, device=like.device, dtype=dtype) / max(half, 1))
    angles = torch.arange(steps, device=like.device, dtype=dtype)[:, None, None, None] * speeds
    return torch.stack([angles.cos(), angles.sin()]).to(like.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs of channels (i, i + d // 2) of x (T, B, heads, d); an odd last channel stays."""
    half = cos.shape[-1]
    a, b, rest = x.split([half, half, x.shape[-1] - 2 * half], -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)


def sliding_pieces(steps: int, window: int, seen: Tensor) -> list[Piece]:
    """What each step sees of the cached steps and of the call's own, in pieces, so that the work is linear in T.

    `seen` (1, B) is the number of cached steps that exist; the others are padding.
    """
    before, pieces = window - 1, []
    size = max(window, SMALLEST_PIECE)
    for start in range(0, steps, size):
        stop = min(start + size, steps)
        keys = torch.arange(start, stop + before, device=seen.device)
        queries = torch.arange(start, stop, device=seen.device)[:, None]
        mask = (keys >= queries) & (keys <= queries + before)  # (queries, keys): key n + t is step t
        if start < before:
            exists = keys >= before - seen.T  # (B, keys)
            mask = mask & exists[:, None, None]  # (B, 1, queries, keys)
        pieces.append((slice(start, stop), slice(start, stop + before), mask))
    return pieces


def attend(q: Tensor, k: Tensor, v: Tensor, queries: slice, keys: slice, mask: Tensor) -> Tensor:
    """Attention of some steps to some steps, under a mask."""
    return F.scaled_dot_product_attention(q[:, :, queries], k[:, :, keys], v[:, :, keys], attn_mask=mask)


class TransformerBlock(nn.Module):
    """Attention and a feed-forward layer, each with a connection around it."""

    def __init__(self, options: TransformerOptions, where: dict[str, Any]) -> None:
        super().__init__()
        width, inner = options.hidden_size, options.hidden_size * options.feed_forward
        self.norm = nn.LayerNorm(width, **where)
        self.attention = Attention(options, where)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width, **where), Linear(width, inner, **where), nn.GELU(), Linear(inner, width, **where)
        )
        self.dropout = options.dropout

    def forward(self, x: Tensor, cache: Tensor, view: View) -> tuple[Tensor, Tensor]:
        """Return the outputs for x (T, B, H), and the keys and values of all steps (window - 1 + T, B, 2H)."""
        y, rows = self.attention(self.norm(x), cache, view)
        x = x + F.dropout(y, self.dropout, self.training)
        return x + F.dropout(self.feed_forward(x), self.dropout, self.training), rows


class TransformerBody(Baseline, TransformerOptions):
    """A causal transformer as a body.

    Its state is the number of cached steps (1, B), at most window - 1, and per layer the keys and values of the last
    window - 1 steps (window - 1, B, 2H).

    >>> body = TransformerBody(3, hidden_size=8, window=5)
    >>> y, (seen, caches) = body(torch.randn(10, 2, 3))
    >>> tuple(y.shape), seen.tolist(), tuple(caches[0].shape), body.receptive_field
    ((10, 2, 8), [[4, 4]], (4, 2, 16), 17)
    """

    input_scale = 6.0  # as for a trellis
    output_size: int

    def build(self, where: dict[str, Any]) -> None:
        same = self.input_size == self.hidden_size
        self.up = None if same else Linear(self.input_size, self.hidden_size, **where)
        self.blocks = nn.ModuleList(TransformerBlock(self, where) for _ in range(self.num_layers))
        self.norm = nn.LayerNorm(self.hidden_size, **where)
        self.receptive_field: int = 1 + self.num_layers * (self.window - 1)
        self._init_residual()

    def _init_residual(self) -> None:
        """Scale what blocks add by 1 / sqrt(2 layers), as in GPT-2: the sum keeps its size at any depth."""
        with torch.no_grad():
            for name, parameter in self.blocks.named_parameters():
                if name.endswith(("write.weight", "feed_forward.3.weight")):
                    parameter.div_(math.sqrt(2 * self.num_layers))

    def forward(
        self, x: Tensor, state: Any = None, *, lengths: Sequence[int] | Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Run x (T, B, C) from the state of an earlier call; return outputs (T, B, O) and the new state.

        With `lengths`, the state is the one at each sequence's own end, and outputs beyond it are zero.
        """
        x = without_padding(x, lengths)
        steps = len(x)
        x = x if self.up is None else self.up(x)
        before, size = self.window - 1, self.hidden_size // self.heads
        seen, caches = self._empty_state(x) if state is None else state
        if state is None and steps <= self.window:
            view = View(rotations(steps, size, x))
        else:
            view = View(rotations(before + steps, size, x), sliding_pieces(steps, self.window, seen))
        after = []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, rows = block(x, cache, view)
            after.append(last_steps(rows, before, lengths))
        ends = steps if lengths is None else torch.as_tensor(lengths, device=x.device)
        return self.project(self.norm(x), lengths), ((seen + ends).clamp_max(before), tuple(after))

    def _empty_state(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        batch = x.shape[1]
        cache = x.new_zeros(self.window - 1, batch, 2 * self.hidden_size)
        return torch.zeros(1, batch, dtype=torch.long, device=x.device), [cache] * self.num_layers
