"""The equations of the paper (sections 3 and 5.1) as loops over layers and steps: the specification.

Slow and obvious. Everything else in this package is tested against it.

The paper's way through the grid of cells is by *layers*. Two more iterate the same equations, with the same weights, to
the same fixed point. They differ in where a cell finds what lies before its step: the hidden states of the older taps,
and the memory. L is the number of layers.

    path      order of the cells   older taps read level   memory is read from level
    layers    layer after layer    i, the level below      i, the level below
    sweeps    layer after layer    i, the level below      i+1, the same layer
    steps     step after step      L, the last             L, the last

Shapes: T steps, B sequences, C input channels, H hidden channels, G gates, K taps (the oldest first).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from trellisnet.core.cells import Cell


@dataclass
class Left:
    """What comes before the first step. The last row of each tensor is step -1; steps before the first row are zero."""

    x: Tensor | None = None  # (S, B, C)
    hidden: dict[int, Tensor] = field(default_factory=dict)  # level -> (S, B, H)
    memory: dict[int, Tensor] = field(default_factory=dict)  # level -> (S, B, H)


def _at(rows: Sequence[Tensor], left: Tensor | None, t: int, zero: Tensor) -> Tensor:
    if t >= 0:
        return rows[t]
    if left is None or -t > len(left):
        return zero
    return left[t]


def naive_trellis(
    x: Tensor,  # (T, B, C)
    weight_input: Tensor,  # (K, C, G*H)
    weight_hidden: Tensor,  # (K, H, G*H)
    bias: Tensor | None,  # (G*H)
    cell: Cell,
    dilations: Sequence[int],  # per layer
    inject_every: int = 1,
    mask: Tensor | None = None,  # (B, H), hidden dropout
    widths: Sequence[int] | None = None,  # channels alive in each layer; default all
    left: Left | None = None,
    path: str = "layers",
    attention: tuple[Tensor, Tensor, Tensor, Tensor] | None = None,  # as `naive_attention` takes them
) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
    """Return hidden[level][t] and memory[level][t], each (B, H). Level 0 is the zero below the first layer.

    With attention, the tap before the newest also reads what `naive_attention` finds at the steps up to t.
    """
    left = left or Left()
    steps, batch, channels = x.shape
    taps, width, gates = weight_hidden.shape
    depth = len(dilations)
    zero, zero_x = x.new_zeros(batch, width), x.new_zeros(batch, channels)
    hidden, memory = ([[zero] * steps, *([] for _ in dilations)] for _ in range(2))
    by_layers = ((i, t) for i in range(depth) for t in range(steps))
    by_steps = ((i, t) for t in range(steps) for i in range(depth))
    for i, t in by_steps if path == "steps" else by_layers:
        older, remembered = {"layers": (i, i), "sweeps": (i, i + 1), "steps": (depth, depth)}[path]
        pre = x.new_zeros(batch, gates)
        if bias is not None:
            pre = pre + bias
        for j in range(taps):
            s = t - (taps - 1 - j) * dilations[i]
            level = i if s == t else older
            read = _at(hidden[level], left.hidden.get(level), s, zero)
            injected = i % inject_every == 0
            if attention is not None and j == taps - 2:
                seen = range(t, t - attention[2].shape[1], -1)
                below = [_at(hidden[i], left.hidden.get(i), step, zero) for step in seen]
                inputs = [_at(list(x), left.x, step, zero_x) if injected else zero_x for step in seen]
                read = read + naive_attention(below, inputs, *attention)
            pre = pre + read @ weight_hidden[j]
            if injected:
                pre = pre + _at(list(x), left.x, s, zero_x) @ weight_input[j]
        before = _at(memory[remembered], left.memory.get(remembered), t - dilations[i], zero)
        h, m = cell(pre.unflatten(-1, (cell.gates, width)), before)
        m = zero if m is None else m
        if mask is not None:
            h = h * mask
        if widths is not None:
            alive = (torch.arange(width, device=x.device) < widths[i]).to(x.dtype)
            h, m = h * alive, m * alive
        hidden[i + 1].append(h)
        memory[i + 1].append(m)
    return hidden, memory


def naive_attention(
    hidden: Sequence[Tensor],  # by lag, the present step first: (B, H) each
    inputs: Sequence[Tensor],  # (B, C) each
    weight_hidden: Tensor,  # (H, 3H)
    weight_input: Tensor,  # (C, 3H)
    lag_scores: Tensor,  # (heads, window)
    gamma: Tensor,
) -> Tensor:
    """What attention adds at one step, (B, H): the equations of `attention.py`."""
    heads, window = lag_scores.shape
    rows = [h @ weight_hidden + x @ weight_input for h, x in zip(hidden, inputs, strict=True)]
    results = []
    for head in range(heads):
        query = rows[0].chunk(3, -1)[0].chunk(heads, -1)[head]
        keys = [row.chunk(3, -1)[1].chunk(heads, -1)[head] for row in rows]
        values = [row.chunk(3, -1)[2].chunk(heads, -1)[head] for row in rows]
        size = query.shape[-1]
        scores = [(query * keys[lag]).sum(-1) / size**0.5 + lag_scores[head, lag] for lag in range(window)]
        weights = torch.stack(scores).softmax(0)  # (window, B)
        results.append(sum(weight[:, None] * value for weight, value in zip(weights, values, strict=True)))
    return gamma * torch.cat(results, -1)
