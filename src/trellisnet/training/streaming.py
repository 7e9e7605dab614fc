"""Exact evaluation of a long text in parallel columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trellisnet.models.body import needs_state, nests_depths, receptive_field, run_depths
from trellisnet.models.heads import IGNORED
from trellisnet.models.language import LanguageModel
from trellisnet.training.distribution import Workers

UNBOUNDED = 512  # tokens read before a column by a body with unbounded receptive field, to warm up its state


def stream_columns(
    lm: LanguageModel,
    ids: NDArray[np.unsignedinteger],
    columns: int,
    window: int,
    workers: Workers,
    depths: Sequence[int | None] = (None,),
) -> tuple[list[float], int]:
    """Summed negative log-likelihood of a text at each depth, and its number of predicted tokens; None: the own depth.

    Each token is predicted from its full receptive field. The text is cut into columns that are read in parallel.
    Before each column, the model reads the preceding tokens of its receptive field, so that the column starts with the
    same state as in one pass over the text. The sum therefore does not depend on the number of columns. The tokens
    before the first column are the beginning of the text and count too. Each process reads its own columns.

    Several depths take one pass, with the context of the deepest, if the body gives them in one call.
    """
    if len(depths) > 1 and not nests_depths(lm.net):
        found = [stream_columns(lm, ids, columns, window, workers, [depth]) for depth in depths]
        return [nll for (nll,), _ in found], found[0][1]
    predicted = len(ids) - 1
    before = min(predicted - 1, max((receptive_field(lm.net, depth) or UNBOUNDED + 1) - 1 for depth in depths))
    # with columns much shorter than the tokens read before them, most of the work would not count
    columns = max(1, min(columns, (predicted - before) // max(1, 2 * before)))
    length = -(-(predicted - before) // columns)
    own = range(columns)[workers.rank :: workers.count]
    firsts = [before + column * length for column in own]
    nlls, count, state = [0.0] * len(depths), 0, None
    with lm.reading():
        for start in [*range(-before, 0, window), *range(0, length, window)] if firsts else ():
            stop = min(start + window, 0 if start < 0 else length)
            inputs, targets = _cut(ids, firsts, start, stop, workers.device)
            if start < 0:
                targets[[first > before for first in firsts]] = IGNORED  # another column counts them
            outputs, after = run_depths(lm.net, lm.vectors(inputs), state, depths=depths)
            state = needs_state(lm.net, after)
            for i, output in enumerate(outputs):
                nlls[i] += lm.head.nll(output, targets.t()).double().sum().item()
            count += int((targets != IGNORED).sum())
    return nlls, count


def _cut(ids: NDArray[Any], firsts: list[int], start: int, stop: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Inputs and targets: tokens `start` to `stop` of every column, and the next ones; IGNORED after the end."""
    places = np.asarray(firsts)[:, None] + np.arange(start, stop + 1)
    tokens = torch.from_numpy(ids[np.minimum(places, len(ids) - 1)].astype(np.int64))
    inside = torch.from_numpy(places[:, 1:] < len(ids))
    return tokens[:, :-1].to(device), tokens[:, 1:].masked_fill(~inside, IGNORED).to(device)
