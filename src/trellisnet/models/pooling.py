"""What a model of whole sequences reads of a body's output y(1) .. y(n), n being the length of the sequence.

The read-outs by name:

    last        y(n)
    mean        (y(1) + ... + y(n)) / n
    max         max over t of y(t), channel by channel
    attention   sum over t of a(t) y(t), with a = softmax over t of w . y(t)

w starts at 0, so that attention starts as the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trellisnet.core.precision import without_autocast
from trellisnet.models.body import BodyOutput
from trellisnet.models.heads.base import affine, to_compute


class Pooling(nn.Module):
    """A summary of all steps of each sequence.

    Args:
        kind: "mean", "max" or "attention".
        features: channels of the output.
        where: device and dtype.
    """

    def __init__(self, kind: str, features: int, **where: Any) -> None:
        super().__init__()
        self.kind = kind
        self.score = None if kind != "attention" else nn.Linear(features, 1, bias=False, **where)
        if self.score is not None:
            nn.init.zeros_(self.score.weight)

    def pooled(self, out: BodyOutput, lengths: Sequence[int] | Tensor | None) -> BodyOutput:
        """The summaries of whole outputs (T, B, D) as one step (1, B, D), those of inner layers too; no state."""
        aux = out.aux
        if aux is not None:
            levels = [self(level, lengths) for level in aux]
            aux = torch.stack(levels) if levels else aux.new_empty(0, 1, *aux.shape[2:])
        return BodyOutput(self(out.output, lengths), None, aux)

    def forward(self, y: Tensor, lengths: Sequence[int] | Tensor | None = None) -> Tensor:
        """Summarise the steps (T, B, D) of each sequence, up to its own length, as one step (1, B, D)."""
        padding: Tensor | None = None
        ends: Tensor | int = len(y)
        if lengths is not None:
            ends = torch.as_tensor(lengths, device=y.device)[:, None]  # (B, 1)
            padding = torch.arange(len(y), device=y.device)[:, None, None] >= ends  # (T, B, 1)
        if self.kind == "max":
            return (y if padding is None else y.masked_fill(padding, -torch.inf)).amax(0, keepdim=True)
        if padding is not None:
            y = y.masked_fill(padding, 0)  # what is there must not reach a result, not even as nan
        if self.score is None:
            return y.sum(0, keepdim=True) / ends
        with without_autocast(y.device.type):
            y = to_compute(y)
            scores = affine(y, self.score.weight, None)  # (T, B, 1)
            shares = (scores if padding is None else scores.masked_fill(padding, -torch.inf)).softmax(0)
            return (shares * y).sum(0, keepdim=True)
