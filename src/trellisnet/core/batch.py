"""Reading x: the forms in which `nn.LSTM` takes a batch of sequences, to (T, B, C) and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from trellisnet.core.checks import positive_int, positive_ints
from trellisnet.core.plan import AnyRows, Lengths, RowsPerSequence


class Sequences(NamedTuple):
    """Sequences as (T, B, C), their lengths where they are not all T, and the form they came in."""

    x: Tensor
    lengths: Lengths | None
    batch_first: bool
    unbatched: bool = False
    packed: PackedSequence | None = None

    def restore(self, y: Tensor, whole: bool = True) -> Tensor | PackedSequence:
        """Convert an output (T, B, C) or (layers, T, B, C) to the form of the input; `whole`: it has all T steps."""
        if self.unbatched:
            return y.squeeze(-2)
        if self.packed is not None and whole and y.dim() == 3:
            order, inverse = self.packed.sorted_indices, self.packed.unsorted_indices
            equal = [len(self.x)] * self.x.shape[1]
            lengths = torch.as_tensor(equal if self.lengths is None else self.lengths, device="cpu")
            if order is not None:
                y, lengths = y.index_select(1, order), lengths.index_select(0, order.cpu())
            packed = pack_padded_sequence(y, lengths)
            return PackedSequence(packed.data, packed.batch_sizes, order, inverse)
        return y.transpose(-3, -2) if self.batch_first else y

    def wanted(self, tail: int | None) -> tuple[tuple[int, ...] | range | None, RowsPerSequence | None]:
        """The last `tail` steps of all sequences (None: all steps), and which of them each sequence picks."""
        if tail is None:
            return None, None
        if isinstance(self.lengths, Tensor):
            return None, self._last_of_each(tail)
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
        wanted, picked = self.wanted(tail)
        if picked is None:
            assert isinstance(wanted, range)
            return slice(wanted.start, wanted.stop)
        return self._last_of_each(tail)

    def _last_of_each(self, tail: int) -> RowsPerSequence:
        """The last `tail` steps of sequences of unequal lengths, among all steps."""
        device = self.x.device
        rows = torch.as_tensor(self.lengths, device=device) - tail + torch.arange(tail, device=device)[:, None]
        return rows, torch.arange(rows.shape[1], device=device)

    def padding(self) -> Tensor | None:
        """True at the steps beyond each sequence's end: (T, B, 1); None if there are none."""
        if self.lengths is None:
            return None
        ends = torch.as_tensor(self.lengths, device=self.x.device)
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
    if is_exporting() and not _is_fixed(x.shape[0]):
        raise ValueError(
            "the time axis of x cannot be dynamic in an export, because another number of steps needs other cells: "
            "export one step with its state, or sequences of one stated length"
        )
    if 0 in x.shape:
        raise ValueError(f"x must not be empty: got {x.shape[0]} steps of {x.shape[1]} sequences")
    return Sequences(x, check_lengths(lengths, *x.shape[:2]), batch_first, unbatched, packed)


def is_exporting() -> bool:
    """Whether `torch.export` traces this call; torch 2.6 tells only that something traces it."""
    return bool(getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)())


def _is_fixed(size: int) -> bool:
    """Whether a size is the same in all calls of an exported program.

    Dynamic sizes are no integers, but in a strict export they seem to be. `torch.onnx.export` tries that if the other
    kind fails, and would write a program for the example's size.
    """
    from torch.fx.experimental import symbolic_shapes  # noqa: PLC0415  # slow to import

    if not hasattr(torch.compiler, "is_exporting") or not hasattr(symbolic_shapes, "has_static_value"):
        return isinstance(size, int)
    return bool(symbolic_shapes.has_static_value(size))


def check_lengths(lengths: Sequence[int] | Tensor | None, longest: int, batch: int) -> Lengths | None:
    """Return the lengths of a batch after a check of each; None if all sequences have all steps.

    The lengths of an exported program are not known when it is traced: they stay a tensor, and only their number is
    checked.
    """
    if lengths is None:
        return None
    if isinstance(lengths, Tensor) and is_exporting():
        if lengths.dim() != 1 or lengths.shape[0] != batch or lengths.is_floating_point():
            raise ValueError(f"lengths must be {batch} integers, one per sequence, got shape {tuple(lengths.shape)}")
        return lengths
    values = positive_ints("lengths", lengths)
    if len(values) != batch:
        raise ValueError(f"lengths must be {batch} integers, one per sequence, got {len(values)}")
    for row, n in enumerate(values):
        if n > longest:
            raise ValueError(f"lengths[{row}] must lie in 1 .. {longest} (the steps of x), got {n}")
    return None if min(values) == longest else values
