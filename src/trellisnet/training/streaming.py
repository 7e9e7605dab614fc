"""Exact evaluation of a long text in parallel columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trellisnet.core.state import TrellisState
from trellisnet.models.heads import IGNORED
from trellisnet.models.language import TrellisLM
from trellisnet.training.distribution import Workers


def stream_columns(
    lm: TrellisLM,
    ids: NDArray[np.unsignedinteger],
    columns: int,
    window: int,
    workers: Workers,
    depth: int | None = None,
) -> tuple[float, int]:
    """Summed negative log-likelihood and number of a text's tokens, each predicted from its full receptive field.

    The text is cut into columns that are read side by side. What stands before a column's first token is read first,
    as far back as the model can see, to give the column the state it would have in one long run: so the sum does not
    depend on the number of columns. Processes have columns of their own.
    """
    predicted = len(ids) - 1
    before = lm.net.receptive_field_at(depth) - 1
    # a column much shorter than what is read before it would cost more than it brings
    columns = max(1, min(columns, predicted // max(1, 2 * before)))
    length = -(-predicted // columns)
    own = range(columns)[workers.rank :: workers.count]
    nll, count = 0.0, 0
    with lm.reading():
        if not own:
            return nll, count
        firsts = [column * length for column in own]
        state = _state_before(firsts, before, ids, lm, window, workers.device, depth)
        for start in range(0, length, window):
            stop = min(start + window, length)
            inputs, targets = _cut(ids, firsts, start, stop, workers.device)
            features = lm.features(inputs, state, depth=depth)
            state = features.state
            nll += lm.head.nll(features.output, targets.t()).double().sum().item()
            count += int((targets != IGNORED).sum())
    return nll, count


def _cut(ids: NDArray[Any], firsts: list[int], start: int, stop: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Tokens `start` to `stop` of every column and those that follow them; beyond the text's end nothing counts."""
    places = np.asarray(firsts)[:, None] + np.arange(start, stop + 1)
    tokens = torch.from_numpy(ids[np.minimum(places, len(ids) - 1)].astype(np.int64))
    inside = torch.from_numpy(places[:, 1:] < len(ids))
    return tokens[:, :-1].to(device), tokens[:, 1:].masked_fill(~inside, IGNORED).to(device)


def _state_before(
    firsts: list[int],
    before: int,
    ids: NDArray[Any],
    lm: TrellisLM,
    window: int,
    device: torch.device,
    depth: int | None,
) -> TrellisState | None:
    """The state of every column at its first token; the very first column has none, which is zeros."""
    later = [first for first in firsts if first]
    if not later or not before:
        return None
    state: TrellisState | None = None
    for start in range(-before, 0, window):
        inputs, _ = _cut(ids, later, start, min(start + window, 0), device)
        state = lm.features(inputs, state, depth=depth).state
    assert state is not None
    if len(later) == len(firsts):
        return state

    def with_first(part: Tensor | None) -> Tensor | None:
        return None if part is None else torch.cat([torch.zeros_like(part[:, :1]), part], 1)

    h = with_first(state.h)
    assert h is not None
    return TrellisState(h, with_first(state.c), with_first(state.x), state.spans)
