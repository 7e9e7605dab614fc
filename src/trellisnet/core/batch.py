"""Reading x: the forms in which `nn.LSTM` takes a batch of sequences, to (T, B, C) and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from trellisnet.core.checks import positive_int, positive_ints
from trellisnet.core.plan import AnyRows, RowsPerSequence


class Sequences(NamedTuple):
    """Sequences as (T, B, C), their lengths where they are not all T, and the form they came in."""

    x: Tensor
    lengths: tuple[int, ...] | None
    batch_first: bool
    unbatched: bool = False
    packed: PackedSequence | None = None

    def restore(self, y: Tensor, whole: bool = True) -> Tensor | PackedSequence:
        """Convert an output (T, B, C) or (layers, T, B, C) to the form of the input; `whole`: it has all T steps."""
        if self.unbatched:
            return y.squeeze(-2)
        if self.packed is not None and whole and y.dim() == 3:
            order, inverse = self.packed.sorted_indices, self.packed.unsorted_indices
            lengths = torch.tensor(self.lengths or [len(self.x)] * self.x.shape[1], device="cpu")
            if order is not None:
                y, lengths = y.index_select(1, order), lengths.index_select(0, order.cpu())
            packed = pack_padded_sequence(y, lengths)
            return PackedSequence(packed.data, packed.batch_sizes, order, inverse)
        return y.transpose(-3, -2) if self.batch_first else y

    def wanted(self, tail: int | None) -> tuple[tuple[int, ...] | range | None, RowsPerSequence | None]:
        """The last `tail` steps of all sequences (None: all steps), and which of them each sequence picks."""
        if tail is None:
            return None, None
        ends = self.lengths or (len(self.x),)
        if positive_int("tail", tail) > min(ends):
            what = "the steps of x" if self.lengths is None else "the shortest of lengths"
            raise ValueError(f"tail must be at most {min(ends)} ({what}), got {tail}")
        if min(ends) == max(ends):
            return range(ends[0] - tail, ends[0]), None
        wanted = sorted({step for n in ends for step in range(n - tail, n)})
        row = {step: i for i, step in enumerate(wanted)}
        picked = [[row[n - tail + i] for n in ends] for i in range(tail)]
        device = self.x.device
        return tuple(wanted), (torch.tensor(picked, device=device), torch.arange(len(ends), device=device))

    def last(self, tail: int) -> AnyRows:
        """Where the last `tail` steps of each sequence are among all steps."""
        _, picked = self.wanted(tail)
        if picked is None:
            stop = self.lengths[0] if self.lengths else len(self.x)
            return slice(stop - tail, stop)
        ends = torch.tensor(self.lengths, device=self.x.device)
        return ends - tail + torch.arange(tail, device=self.x.device)[:, None], picked[1]

    def padding(self) -> Tensor | None:
        """True at the steps beyond each sequence's end: (T, B, 1); None if there are none."""
        if self.lengths is None:
            return None
        ends = torch.tensor(self.lengths, device=self.x.device)
        return (torch.arange(len(self.x), device=self.x.device)[:, None] >= ends).unsqueeze(-1)


def read_sequences(
    x: Tensor | PackedSequence, lengths: Sequence[int] | Tensor | None, batch_first: bool, input_size: int
) -> Sequences:
    """Check an input and convert it to (T, B, C)."""
    packed = x if isinstance(x, PackedSequence) else None
    if packed is not None:
        if lengths is not None:
            raise ValueError("lengths must not be given with a PackedSequence, which has its own")
        x, lengths = pad_packed_sequence(packed)
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor or a PackedSequence, got {type(x).__name__}")
    unbatched = x.dim() == 2
    if x.dim() not in (2, 3):
        raise ValueError(f"x must be (T, B, C), (B, T, C) with batch_first, or (T, C), got shape {tuple(x.shape)}")
    if x.shape[-1] != input_size:
        raise ValueError(f"x must have input_size = {input_size} channels last, got shape {tuple(x.shape)}")
    if unbatched:
        x = x.unsqueeze(1)
    elif batch_first and packed is None:
        x = x.transpose(0, 1)
    if 0 in x.shape:
        raise ValueError(f"x must not be empty: got {x.shape[0]} steps of {x.shape[1]} sequences")
    return Sequences(x, check_lengths(lengths, *x.shape[:2]), batch_first, unbatched, packed)


def check_lengths(lengths: Sequence[int] | Tensor | None, longest: int, batch: int) -> tuple[int, ...] | None:
    """Return the lengths of a batch after a check of each; None if all sequences have all steps."""
    if lengths is None:
        return None
    values = positive_ints("lengths", lengths)
    if len(values) != batch:
        raise ValueError(f"lengths must be {batch} integers, one per sequence, got {len(values)}")
    for row, n in enumerate(values):
        if n > longest:
            raise ValueError(f"lengths[{row}] must lie in 1 .. {longest} (the steps of x), got {n}")
    return None if min(values) == longest else values
