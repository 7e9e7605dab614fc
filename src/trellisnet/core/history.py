"""What a net keeps between calls: which states it accepts, and the state it leaves."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trellisnet.core.cache import remembered
from trellisnet.core.plan import Plan, Rows, take
from trellisnet.core.state import TrellisState

AnyState = TrellisState | tuple[Tensor, Tensor | None] | Tensor


def as_state(state: AnyState | None) -> TrellisState | None:
    """What a caller may give as a state, as one."""
    if state is None or isinstance(state, TrellisState):
        return state
    if isinstance(state, Tensor):
        return TrellisState(state)
    if isinstance(state, (tuple, list)) and len(state) == 2:
        return TrellisState(*state)
    raise TypeError(f"state must be a TrellisState or a pair (h, c), got {type(state).__name__}")


@dataclass(frozen=True)
class History:
    """The sizes of a net's states."""

    input_size: int
    hidden_size: int
    has_memory: bool
    kernel_size: int
    dilation: tuple[int, ...]
    input_taps: int

    @remembered
    def dilations(self, layers: int) -> tuple[int, ...]:
        """The dilation of each of so many layers."""
        return tuple(self.dilation[i % len(self.dilation)] for i in range(layers))

    @remembered
    def spans(self, levels: int) -> tuple[int, ...]:
        """How many steps back the layer above each level looks: the rows a state keeps of it."""
        return tuple((self.kernel_size - 1) * d for d in self.dilations(levels))

    @property
    def input_span(self) -> int:
        """How many earlier inputs the injection reads."""
        return (self.input_taps - 1) * max(self.dilation)

    def check(self, state: TrellisState, x: Tensor) -> None:
        """Raise an error that says what of a state does not fit this net and x."""
        batch, width = state.h.shape[1:]
        if width != self.hidden_size:
            raise ValueError(f"state must have hidden_size = {self.hidden_size} channels, got {width}")
        if batch != x.shape[1]:
            raise ValueError(f"state must belong to {x.shape[1]} sequences, as x does, got {batch}")
        if not state.h.is_floating_point():
            raise ValueError(f"state must have floating-point numbers, got {state.h.dtype}")
        if (state.c is not None) != self.has_memory:
            has, needs = ("no c", "keeps one") if state.c is None else ("a c", "keeps none")
            raise ValueError(f"state has {has}, but the cell of this net {needs}")
        spans = self.spans(len(state.spans))
        if len(state.spans) > 1 and (state.spans[1:] != spans[1:] or state.spans[0] not in (0, spans[0])):
            raise ValueError(
                f"state has {state.spans} context rows a level, but this net keeps {spans}: another net's?"
            )
        expected = (self.input_span, batch, self.input_size) if self.input_span else None
        inputs = None if state.x is None else tuple(state.x.shape)
        if inputs != expected and (len(state.spans) > 1 or inputs is not None):
            raise ValueError(f"state has inputs of shape {inputs}, but this net keeps {expected}: another net's?")
        for part in (state.h, state.c, state.x):
            if part is not None and part.device != x.device:
                raise ValueError(f"state must be on the device of x, {x.device}, got {part.device}")

    def ends(self, plan: Plan, lengths: tuple[int, ...] | None, device: torch.device) -> tuple[Rows, ...]:
        """For every level from 1 on, the rows that the next state keeps of it."""
        return tuple(self._end(len(level.context), plan.wanted, lengths, device) for level in plan.levels[1:])

    @staticmethod
    def _end(span: int, steps: int, lengths: tuple[int, ...] | None, device: torch.device) -> Rows:
        """The last `span` rows of a level that has as many context rows: at the end, or at each sequence's own end."""
        if lengths is None:
            return slice(steps, steps + span)
        return torch.tensor(lengths, device=device) + torch.arange(span, device=device)[:, None]

    def after(
        self,
        plan: Plan,
        x: Tensor,
        state: TrellisState | None,
        lengths: tuple[int, ...] | None,
        h: Tensor,
        c: Tensor | None,
    ) -> TrellisState:
        """The state after a call: `h` and `c` are the rows at `ends`, the inputs and level 0 are added here."""
        spans, bottom, last_x = plan.spans, 0, None
        if span := self.input_span:
            last_x = self._last(None if state is None else state.x, x, span, lengths)
        if state is not None and state.first_level == 0 and min(lengths or x.shape[:1]) < spans[0]:
            # a call shorter than the span after `repackage`: part of the context below the first layer is still seen
            bottom, (old_h, old_c) = spans[0], state.contexts(plan)
            zeros = h.new_zeros(x.shape[0], *h.shape[1:])
            h = torch.cat([self._last(old_h[:bottom], zeros, bottom, lengths), h])
            if c is not None and old_c is not None:
                c = torch.cat([self._last(old_c[:bottom], zeros, bottom, lengths), c])
        return TrellisState(h, c, last_x, (bottom, *spans[1:]))

    def _last(self, before: Tensor | None, now: Tensor, span: int, lengths: tuple[int, ...] | None) -> Tensor:
        """The last `span` rows of what was before (None: zeros) and what came now; at each sequence's own end."""
        steps = now.shape[0]
        if lengths is None and span <= steps:
            return (now if span == steps else now[-span:]).clone()  # not a view: the caller may reuse its memory
        before = now.new_zeros(span, *now.shape[1:]) if before is None else before
        return take(torch.cat([before, now]), self._end(span, steps, lengths, now.device))
