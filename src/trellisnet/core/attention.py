"""AttentionTrellis: a trellis network whose tap at lag d also reads by attention.

Layer i at step t, with levels z, dilation d and the tokens u_s = [z_s, x_s]:

    tap at lag d     reads  z_{t-d} + gamma attention_t
    attention_t      = heads side by side of  sum_l softmax_l(q_t k_{t-l} / sqrt(D) + r_l) v_{t-l},  0 <= l < window
    q_s, k_s, v_s    = the three parts of u_s A, D channels per head

The scores r_l of the lags are learned, one per head. A step before the start of a sequence is a null token: its
key and value are zero, because nothing is added to u_s A. So an empty context is the start of a sequence, here as in
every trellis. With gamma = 0 the net is the trellis without attention. Everything else is the trellis's own.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.core.call import Call, Inputs
from trellisnet.core.options import AttentionTrellisOptions, declared_by
from trellisnet.core.taps import Taps
from trellisnet.core.trellis import TrellisNet

SMALLEST_PIECE = 64  # steps whose attention is computed together


def by_position(lag_scores: Tensor, steps: int) -> Tensor:
    """Scores by lag (heads, n) as scores of pairs: (heads, steps, n - 1 + steps). Outside of the window -inf.

    The keys are the n - 1 steps before the first query, and the steps themselves.

    >>> by_position(torch.tensor([[1.0, 2.0]]), 3)[0].tolist()
    [[2.0, 1.0, -inf, -inf], [-inf, 2.0, 1.0, -inf], [-inf, -inf, 2.0, 1.0]]
    """
    window, device = lag_scores.shape[-1], lag_scores.device
    queries, keys = torch.arange(steps, device=device), torch.arange(1 - window, steps, device=device)
    lags = queries[:, None] - keys
    scores = lag_scores[:, lags.clamp(0, window - 1)]
    return scores.masked_fill((lags < 0) | (lags >= window), -math.inf)


def window_attention(q: Tensor, k: Tensor, v: Tensor, lag_scores: Tensor) -> Tensor:
    """Attention of q (T, B, heads, D) to a window of k and v (n - 1 + T, B, heads, ...), the n - 1 steps before first.

    `lag_scores` (heads, n) are added to the scaled products. Pieces of the sequence make the work linear in T.
    """
    before, steps = lag_scores.shape[-1] - 1, len(q)
    size = min(steps, max(before, SMALLEST_PIECE))
    scores = by_position(lag_scores, size)
    q, k, v = (each.permute(1, 2, 0, 3) for each in (q, k, v))  # (B, heads, T, D)
    pieces = []
    for start in range(0, steps, size):
        count = min(size, steps - start)
        keys = slice(start, start + count + before)
        mask = scores[:, :count, : count + before]
        queries = q[:, :, start : start + count]
        pieces.append(F.scaled_dot_product_attention(queries, k[:, :, keys], v[:, :, keys], attn_mask=mask))
    return (pieces[0] if len(pieces) == 1 else torch.cat(pieces, 2)).permute(2, 0, 1, 3)


class WindowAttention(nn.Module):
    """The weights of attention: A for hidden states and inputs, the scores of the lags, and gamma."""

    def __init__(self, input_size: int, options: AttentionTrellisOptions, **where: Any) -> None:
        super().__init__()
        width = options.hidden_size
        self.weight_hidden = nn.Parameter(torch.zeros(width, 3 * width, **where))
        self.weight_input = nn.Parameter(torch.zeros(input_size, 3 * width, **where))
        self.lag_scores = nn.Parameter(torch.zeros(options.heads, options.window or 1, **where))
        self.gamma = nn.Parameter(torch.zeros(1, **where))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights again; lag scores and gamma are zero, so that the net is one without attention."""
        bound = 1 / math.sqrt(len(self.weight_hidden) + len(self.weight_input))
        with torch.no_grad():
            for weight in (self.weight_hidden, self.weight_input):
                weight.uniform_(-bound, bound)
            for zero in (self.lag_scores, self.gamma):
                zero.zero_()

    def extra_repr(self) -> str:
        heads, window = self.lag_scores.shape
        return f"window={window}, heads={heads}"


class AttendingTaps(Taps):
    """Reads as the paper does, and adds attention to what the tap at lag d reads."""

    def __init__(self, call: Call, inputs: Inputs, attention: WindowAttention) -> None:
        super().__init__(call, inputs)
        self.attention = attention
        from_input = inputs.x @ attention.weight_input.to(call.dtype)  # the same in all layers
        self.from_input = from_input.chunk(3, -1)

    def hidden(self, i: int, level: Tensor) -> list[Tensor]:
        taps = super().hidden(i, level)
        taps[-2] = taps[-2] + self._attend(i, level)
        return taps

    def _attend(self, i: int, level: Tensor) -> Tensor:
        attention, dtype = self.attention, level.dtype
        lag_scores = attention.lag_scores.to(dtype)
        heads, window = lag_scores.shape
        parts = []
        for part, weight in enumerate(attention.weight_hidden.to(dtype).chunk(3, -1)):
            first = window - 1 if part == 0 else 0  # there are no queries of the steps before
            # the first layer finds zeros below, which need no product
            read = level[first:] if i == 0 and self.call.zero_below else level[first:] @ weight
            if i % self.call.inject_every == 0:
                read = read + self.from_input[part][first:]
            parts.append(read.unflatten(-1, (heads, -1)))
        q, k, v = parts
        return attention.gamma.to(dtype) * window_attention(q, k, v, lag_scores).flatten(2)


@dataclass(eq=False, repr=False)
class _Arguments(AttentionTrellisOptions):
    batch_first: bool = False
    device: torch.device | str | None = None
    dtype: torch.dtype | None = None


class AttentionTrellis(AttentionTrellisOptions, TrellisNet):
    """A trellis network whose tap at lag d reads z_{t-d} + gamma attention(z_{t-window+1} .. z_t).

    It begins with gamma = 0, as an ordinary trellis. `TrellisNet.attend` makes one that is equal to a trained trellis.
    Calls, states and options are those of `TrellisNet`; a state keeps the last window - 1 steps of every level. `tail`
    computes all steps, because attention needs them.

    Args:
        input_size: channels of the input.
        options: those of `AttentionTrellisOptions`.
        batch_first, device, dtype: as for `TrellisNet`.

    >>> net = AttentionTrellis(3, 16, num_layers=4, window=10, heads=4)
    >>> y, state = net(torch.randn(20, 2, 3))
    >>> tuple(y.shape), state.spans, net.receptive_field
    ((20, 2, 16), (0, 9, 9, 9, 9), 37)
    """

    Options = AttentionTrellisOptions
    paths = ("layers", "sweeps")
    cones = False
    added_parts = ("attention",)  # without effect at first
    output_size: int
    window: int

    @declared_by(_Arguments)
    def __init__(self, input_size: int, *args: Any, **options: Any) -> None:
        TrellisNet.__init__(self, input_size, *args, **options)

    def _build(self, **where: Any) -> None:
        super()._build(**where)
        self.attention = WindowAttention(self.input_size, self, **where)
        self.state_form = replace(self.state_form, window=self.window)

    @staticmethod
    def of(trellis: TrellisNet, window: int | None, heads: int) -> AttentionTrellis:
        """An equal net with attention, whose gamma is zero."""
        given = {field.name: getattr(trellis, field.name) for field in fields(trellis.options)}
        given |= {"cell": copy.deepcopy(trellis.cell), "window": window, "heads": heads}  # a cell may have parameters
        # on `meta` no random numbers are drawn for weights that are not kept
        net = AttentionTrellis(trellis.input_size, **given, batch_first=trellis.batch_first, device="meta")
        net.kernel = copy.deepcopy(trellis.kernel)
        weight = next(trellis.kernel.parameters())
        net.attention.to(weight.dtype).to_empty(device=weight.device)
        net.attention.reset_parameters()
        return net.train(trellis.training)

    def attend(self, window: int | None = None, heads: int = 2) -> AttentionTrellis:
        """Raise a ValueError: attention cannot be added twice."""
        raise ValueError(f"attend needs a net without attention, got one of window={self.window}, heads={self.heads}")

    def reset_parameters(self) -> None:
        """Draw the weights again; gamma is zero."""
        super().reset_parameters()
        self.attention.reset_parameters()

    def densify(self) -> AttentionTrellis:
        """An equal net with a dense kernel, in which training can continue without the constraint of the groups."""
        net = super().densify()
        net.attention = copy.deepcopy(self.attention)
        return net

    def _reader(self, call: Call, inputs: Inputs) -> Taps:
        return AttendingTaps(call, inputs, self.attention)
