"""Batches of a text: windows that are read in parallel columns, of one length or of random lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.core.checks import positive_int, seed_number
from trellisnet.data.batches import Batch, Batches

SHORTEST, DEVIATION, WHOLE = 5, 5.0, 0.95  # of windows of random length: those of AWD-LSTM
COUNTED = 1000  # epochs whose random windows are counted; runs of more epochs end by their time


class TextBatches(Batches):
    """Windows of a text that is cut into `batch_size` columns, which are read in parallel.

    With the state carried from batch to batch, each column is one long text. The remainder that does not fill the
    columns, less than one token per column, is omitted: use `batch_size=1` to read every token.

    Args:
        ids: (tokens,), the token ids of the text.
        batch_size: number of columns of all processes together.
        steps: number of new steps per window; the last window of an epoch may be shorter.
        context: number of steps before each window that are read again, for models that carry no state from window to
            window; a window then has `context + steps` steps.
        seed: draw the lengths of the windows of every epoch anew, from `seed` and the number of the epoch only (Merity
            et al., 2018): normal with the mean `steps`, or half of it for one window in 20, and a standard deviation of
            5, but at least 5. Default: `steps`.
        rank, world_size: this process reads `batch_size / world_size` columns, from column `rank * batch_size /
            world_size` on.

    >>> batches = TextBatches(np.arange(9), batch_size=2, steps=3)
    >>> [batch.inputs.tolist() for batch in batches]
    [[[0, 1, 2], [4, 5, 6]], [[3], [7]]]
    """

    def __init__(
        self,
        ids: NDArray[np.unsignedinteger],
        batch_size: int,
        steps: int,
        *,
        context: int = 0,
        seed: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(batch_size, rank, world_size)
        self.steps = positive_int("steps", steps)
        self.context = positive_int("context", context, minimum=0)
        self.seed = None if seed is None else seed_number("seed", seed)
        self.ids = ids
        self._drawn: tuple[int, NDArray[np.int64]] | None = None
        self.column_length = (len(ids) - 1) // batch_size  # the last token of the text has no target
        if self.column_length <= context:
            raise ValueError(
                f"ids must have more than {batch_size * (context + 1)} tokens for batch_size = {batch_size} and "
                f"context = {context}, got {len(ids)}"
            )

    def count(self, epoch: int) -> int:
        if self.seed is not None:
            return len(self._ends(epoch))
        return (self.column_length - self.context + self.steps - 1) // self.steps

    def total(self, epochs: int) -> int:
        if self.seed is None:
            return super().total(epochs)
        known = sum(map(self.count, range(min(epochs, COUNTED))))
        return known * epochs // min(epochs, COUNTED)

    def _identity(self) -> dict[str, Any]:
        return {
            "tokens": len(self.ids),
            "batch_size": self.batch_size,
            "steps": self.steps,
            "context": self.context,
            "seed": self.seed,
        }

    def _batch(self, position: int) -> Batch:
        import torch  # noqa: PLC0415

        start, stop = self._new_steps(position)
        stop += self.context
        share = self.batch_size // self.world_size
        offsets = [column * self.column_length for column in range(self.rank * share, (self.rank + 1) * share)]
        rows = [self.ids[offset + start : offset + stop + 1] for offset in offsets]
        window = torch.from_numpy(np.stack(rows).astype(np.int64))  # one step more than the inputs, for the targets
        return Batch(window[:, :-1], window[:, 1:], continues=position > 0 and self.context == 0)

    def _new_steps(self, position: int) -> tuple[int, int]:
        """The first of the new steps of a window of this epoch, and the one after the last; both without context."""
        if self.seed is None:
            start = position * self.steps
            return start, min(start + self.steps, self.column_length - self.context)
        ends = self._ends(self.epoch)
        return int(ends[position - 1]) if position else 0, int(ends[position])

    def _ends(self, epoch: int) -> NDArray[np.int64]:
        """Where the windows of an epoch end; the last drawn epoch is kept, because every step asks for it."""
        if self._drawn is None or self._drawn[0] != epoch:
            self._drawn = epoch, self._draw_ends(epoch)
        return self._drawn[1]

    def _draw_ends(self, epoch: int) -> NDArray[np.int64]:
        """Draw the windows of an epoch; return where their new steps end, the last at the end of the columns."""
        assert self.seed is not None
        length = self.column_length - self.context
        generator = np.random.default_rng([self.seed, epoch])
        most = length // SHORTEST + 1
        means = np.where(generator.random(most) < WHOLE, self.steps, self.steps / 2)
        ends = np.maximum(SHORTEST, generator.normal(means, DEVIATION).astype(np.int64)).cumsum()
        return np.append(ends[ends < length], length)
