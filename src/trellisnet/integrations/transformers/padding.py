"""Padded batches. A body reads the tokens of each row without gaps, so padding on any side changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from trellisnet.models.body import BATCH_DIM, BodyOutput, State, detach, select_rows

# from token ids (B, T), the state before them and the number of tokens of each row (None: all T) to the body's output
Reader = Callable[[Tensor, State, "list[int] | None"], BodyOutput]


class Memory(NamedTuple):
    """What a batch has read so far; a pytree with the batch in dimension 1, like every state."""

    state: State
    output: Tensor  # (1, B, D): the body's output at the last token of each row
    started: Tensor  # (1, B): whether the row has read a token; if not, its state means nothing


class Columns:
    """The columns of a padded batch.

    Args:
        valid: (B, T), True for tokens and False for padding, in any order.
    """

    def __init__(self, valid: Tensor) -> None:
        self.valid = valid
        self.counts = valid.sum(1)
        self.full = bool(valid.all())

    def pack(self, values: Tensor, filler: int) -> Tensor:
        """Move the values (B, T) of each row's tokens to its start, and fill the rest."""
        if self.full:
            return values
        order = self.valid.int().argsort(dim=1, descending=True, stable=True)
        return values.masked_fill(~self.valid, filler).gather(1, order)

    def unpack(self, output: Tensor, before: Tensor | None, keep: int | Tensor) -> Tensor:
        """Return the outputs (T, B, D) of packed tokens at the columns that they come from.

        A column of padding has the output of the last token before it, as what follows the padding needs it.

        Args:
            output: (T, B, D), of the packed tokens.
            before: (1, B, D), the output at the last token before these columns; None: there is none.
            keep: return the last n columns only, 0: all; or the indices of the columns.
        """
        columns = torch.arange(len(output), device=output.device)
        columns = columns[keep] if isinstance(keep, Tensor) else columns[-keep:]
        if self.full:
            return output[columns]
        before = torch.zeros_like(output[:1]) if before is None else before
        index = self.valid.cumsum(1).t()[columns]  # 0: no token yet
        return torch.cat([before, output]).gather(0, index.unsqueeze(-1).expand(-1, -1, output.shape[-1]))


def read(reader: Reader, ids: Tensor, columns: Columns, memory: Memory | None) -> tuple[BodyOutput, Memory]:
    """Read the tokens of a padded batch.

    Args:
        reader: the body.
        ids: (B, T), packed.
        columns: the columns that they come from.
        memory: what the batch has read before; None: nothing.

    Returns:
        The outputs of the packed tokens (T, B, D), without meaning after a row's last token, and the new memory.
    """
    if memory is None or (columns.full and bool(memory.started.all())):
        counts = None if columns.full else columns.counts.clamp(min=1)  # a row of padding reads one token, unused
        out = reader(ids, None if memory is None else memory.state, None if counts is None else counts.tolist())
        return out, _memory(out, counts, columns.counts > 0)
    started, reads = memory.started[0], columns.counts > 0
    output = memory.output.new_zeros(ids.shape[1], *memory.output.shape[1:])
    for continues in (True, False):
        rows = (reads & (started == continues)).nonzero().squeeze(1)
        if len(rows):
            counts = columns.counts[rows]
            steps = int(counts.max())
            state = select_rows(memory.state, rows) if continues else None
            out = reader(ids[rows, :steps], state, counts.tolist())
            output[:steps, rows] = out.output
            memory = _put_rows(memory, rows, _memory(out, counts, counts > 0))
    return BodyOutput(output, memory.state), memory


def _memory(out: BodyOutput, counts: Tensor | None, started: Tensor) -> Memory:
    last = out.output[-1] if counts is None else out.output[counts - 1, torch.arange(len(counts), device=counts.device)]
    return Memory(detach(out.state), last.detach().unsqueeze(0), started.unsqueeze(0))


def _put_rows(memory: Memory, rows: Tensor, new: Memory) -> Memory:
    def put(old: object, new: object) -> object:
        return old.index_copy(BATCH_DIM, rows, new) if isinstance(old, Tensor) and isinstance(new, Tensor) else old

    result: Memory = pytree.tree_map(put, memory, new)
    return result
