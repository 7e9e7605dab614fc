"""One call of a net as data: what `TrellisNet` asks of the engine (`Call`), and from which tensors (`Inputs`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from trellisnet.core.cells import Cell
from trellisnet.core.kernel import Block, Weights
from trellisnet.core.plan import AnyRows, Plan, Rows, as_rows
from trellisnet.core.state import TrellisState

# Up to n channels of all input taps, the input is multiplied in every layer instead of once per dilation: the product
# is so much larger than the input (the pixel tasks have one channel) that it would take a third of the memory.
NARROW = 16

R = TypeVar("R")
Outputs = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]  # y, aux, state h, state c


@dataclass(frozen=True, eq=False)
class Call:
    """What is to be computed. Calls of one form share one `Call`, and with it whatever the engine derives from it."""

    plan: Plan
    cell: Cell
    blocks: tuple[Block, ...]
    input_size: int
    input_taps: int
    input_span: int  # inputs before the first step that the taps read
    inject_every: int
    alive: tuple[int | None, ...]  # channels alive in each layer; None: all
    output: slice  # the output channels
    aux: tuple[int, ...]  # levels whose output is wanted too
    ends: tuple[AnyRows, ...]  # of the last n levels, the rows of the state to return; empty: no state
    context_rows: Sequence[int] | None  # rows of the given state that are the contexts; None: no state is given
    first_level: int  # the contexts begin at this level; below it they are zero
    recompute: bool
    batch: int
    device: torch.device
    dtype: torch.dtype  # to compute in
    result_dtype: torch.dtype
    picked: AnyRows | None  # which of the computed steps are returned, per sequence if they differ; None: all
    path: str = "layers"
    starts: bool = False  # whether level 0 is given (`Inputs.start_h`)
    repeats: int = 0  # iterate the one layer until it converges, at most n times, without gradients; 0: no iteration
    tolerance: float | None = None  # stop when a layer changes no hidden state by more; the depth is the most layers
    phantom_layers: int = 0  # with a tolerance: the last n layers have gradients
    _derived: dict[Any, Any] = field(default_factory=dict)

    def derive(self, make: Callable[[Call], R]) -> R:
        """Return `make(call)`, computed once. The one cache of what follows from shapes alone."""
        if make not in self._derived:
            with torch.inference_mode(False):  # it may serve training later
                self._derived[make] = make(self)
        result: R = self._derived[make]
        return result

    @property
    def depth(self) -> int:
        """The number of layers."""
        return len(self.plan.layers)

    @property
    def width(self) -> int:
        """The number of hidden channels."""
        return int(self.blocks[-1].channels.stop)

    @property
    def zero_below(self) -> bool:
        """Whether level 0 is all zeros: it has no context and no start."""
        return not self.starts and (self.context_rows is None or self.first_level == 1)

    @cached_property
    def gate_widths(self) -> tuple[int, ...]:
        """The number of pre-activations of each block."""
        return tuple(self.cell.gates * block.width for block in self.blocks)

    @cached_property
    def contexts(self) -> tuple[slice, ...]:
        """Where the context of each level lies among those of all levels; of a level below `first_level`: nowhere."""
        spans = (0,) * self.first_level + self.plan.spans[self.first_level :]
        return _consecutive(spans)

    @cached_property
    def state_rows(self) -> tuple[slice, ...]:
        """Where the rows of `ends` lie in the state to return."""
        return _consecutive([end.stop - end.start if isinstance(end, slice) else len(end[0]) for end in self.ends])

    def end_of(self, level: int) -> tuple[slice, AnyRows] | None:
        """Where the rows of a level lie in the state to return, and which rows these are; None: it has none there."""
        number = level - 1 - self.depth + len(self.ends)
        return (self.state_rows[number], self.ends[number]) if number >= 0 else None


def _consecutive(counts: Sequence[int]) -> tuple[slice, ...]:
    stops = list(accumulate(counts))
    return tuple(slice(stop - count, stop) for stop, count in zip(stops, counts, strict=True))


@dataclass(frozen=True, eq=False)
class Inputs:
    """The tensors that a call is a function of; its gradients have the same form."""

    x: Tensor  # (S + T, B, C): the inputs before the first step, as far back as the taps read, then x
    mask: Tensor | None  # (B, H)
    context_h: Tensor | None  # (context rows of all levels, B, H); None: zeros
    context_c: Tensor | None
    start_h: Tensor | None  # (T, B, H): level 0, where an iteration goes on; None: zeros
    start_c: Tensor | None
    input_weight: Tensor  # (input taps * C, G*H)
    weights: list[Tensor]  # per block (channels of all terms, G*H)
    biases: list[Tensor | None]  # per block (G*H)

    def flat(self) -> tuple[Tensor | None, ...]:
        """All as one tuple, for autograd."""
        first = (self.x, self.mask, self.context_h, self.context_c, self.start_h, self.start_c, self.input_weight)
        return (*first, *self.weights, *self.biases)

    @staticmethod
    def of(flat: tuple[Tensor | None, ...], blocks: int) -> Inputs:
        """The inverse of `flat`."""
        x, mask, context_h, context_c, start_h, start_c, input_weight, *rest = flat
        first = (x, mask, context_h, context_c, start_h, start_c, input_weight)
        return Inputs(*first, rest[:blocks], rest[blocks:])  # type: ignore[arg-type]


def make_inputs(
    call: Call,
    weights: Weights,
    x: Tensor,
    state: TrellisState | None,
    mask: Tensor | None,
    start: tuple[Tensor | None, Tensor | None] = (None, None),
) -> Inputs:
    """Collect the tensors of a call on x (T, B, C); `start` is level 0, if the call does not begin with zeros."""
    context_h = context_c = left = None
    if state is not None:
        assert call.context_rows is not None
        left, (context_h, context_c) = state.x, state.take(call.context_rows)
    if call.input_span:
        x = F.pad(x, (0, 0, 0, 0, call.input_span, 0)) if left is None else torch.cat([left, x])
    return Inputs(x, mask, context_h, context_c, *start, weights.input, weights.hidden, weights.biases)


class Injections:
    """Which layers of a call add the input, and which rows of x they read.

    An injected layer adds a linear map of a few steps of x to its products. Layers of one dilation read the same steps,
    so there is one injection per dilation, of the lowest layer that uses it: the rows of the others are its last.
    """

    def __init__(self, call: Call) -> None:
        self.rows: list[tuple[Rows, ...]] = []  # per injection and tap: rows of `Inputs.x`
        self.of_layer: list[int | None] = []  # the injection of each layer; None: the input does not enter it
        self.lengths: list[int] = []  # the steps of each injection
        numbers: dict[int, int] = {}  # by dilation
        for i, layer in enumerate(call.plan.layers):
            if i % call.inject_every:
                self.of_layer.append(None)
                continue
            if layer.dilation not in numbers:
                numbers[layer.dilation] = len(self.rows)
                self.rows.append(_input_rows(call, i))
                self.lengths.append(layer.rows)
            self.of_layer.append(numbers[layer.dilation])
        # whether the product of an injection is computed once for all layers that add it, if any do so again
        again = call.repeats or len(self.of_layer) - self.of_layer.count(None) > len(self.rows)
        self.shared = bool(again) and call.input_size * call.input_taps > NARROW

    def gather(self, x: Tensor) -> list[Tensor]:
        """What each injection multiplies: (n, B, input taps * C)."""
        return [torch.cat([x[rows] for rows in taps], -1) for taps in self.rows]


def _input_rows(call: Call, i: int) -> tuple[Rows, ...]:
    """Per tap, the rows of `Inputs.x` that the steps computed by layer i read."""
    steps, dilation = call.plan.levels[i + 1].steps, call.plan.layers[i].dilation
    shifts = [call.input_span - (call.input_taps - 1 - j) * dilation for j in range(call.input_taps)]
    if isinstance(steps, range):
        return tuple(slice(steps.start + shift, steps.stop + shift) for shift in shifts)
    return tuple(as_rows([step + shift for step in steps], call.device) for shift in shifts)
