"""TrellisState: the left context of every level, as an argument and a return value of every call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import GetAttrKey, register_pytree_node

from trellisnet.core.plan import AnyRows, Lengths, Plan, spans_of


@dataclass(eq=False)
class TrellisState:
    """What every level of a trellis would have seen before the next step.

    The contexts of all levels lie one after the other in `h` and `c`: level i has `spans[i]` rows, the newest last.
    Two rules make one kind of state serve every purpose. A level deeper than the state knows takes the deepest
    context it has; a step further back than it knows takes the oldest row. So a pair (h, c), each (B, H), is a
    state as well: every level then starts from it, which is the paper's history repackaging.

    >>> import torch
    >>> from trellisnet import TrellisNet
    >>> net = TrellisNet(3, 8, num_layers=4)
    >>> x = torch.randn(10, 2, 3)
    >>> first, state = net(x[:6])
    >>> second, state = net(x[6:], state)
    >>> torch.allclose(torch.cat([first, second]), net(x)[0], atol=1e-6)
    True
    """

    h: Tensor  # (sum of spans, B, H)
    c: Tensor | None = None  # (sum of spans, B, H), for cells with a memory
    x: Tensor | None = None  # (S, B, C), the last inputs; None: zeros
    spans: tuple[int, ...] = (1,)  # rows per level; without rows, level 0 is zero, as at the start of a sequence
    iterations: tuple[int, ...] = ()  # layers that a call needed to converge: one number, or one per step

    def __post_init__(self) -> None:
        if not isinstance(self.h, Tensor):
            raise TypeError(f"state h must be a tensor, got {type(self.h).__name__}")
        for name, part in (("c", self.c), ("x", self.x)):
            if part is not None and not isinstance(part, Tensor):
                raise TypeError(f"state {name} must be a tensor or None, got {type(part).__name__}")
        if self.h.dim() == 2 and self.spans == (1,):
            self.h = self.h.unsqueeze(0)
            if self.c is not None and self.c.dim() == 2:
                self.c = self.c.unsqueeze(0)
        rows = sum(self.spans)
        if self.h.dim() != 3 or self.h.shape[0] != rows:
            expected = "(batch, hidden) or (1, batch, hidden)" if self.spans == (1,) else f"({rows}, batch, hidden)"
            raise ValueError(f"state h must be {expected} with spans {self.spans}, got {tuple(self.h.shape)}")
        if self.c is not None and self.c.shape != self.h.shape:
            raise ValueError(f"state c must have the shape of h {tuple(self.h.shape)}, got {tuple(self.c.shape)}")

    @property
    def batch_size(self) -> int:
        """The number of sequences the state belongs to."""
        return self.h.shape[1]

    def __iter__(self) -> Iterator[Tensor]:
        """`y, (h, c) = net(x)` as with `nn.LSTM`: the pair `last`, each (1, B, H).

        To continue a sequence exactly, pass the state itself: from a pair every level starts anew, as `repackage` says.

        Raises:
            TypeError: the cell keeps no memory c.
        """
        h, c = self.last
        if c is None:
            raise TypeError("this state has no memory c, because the cell keeps none: write `y, state = net(x)`")
        return iter((h[None], c[None]))

    @property
    def last(self) -> tuple[Tensor, Tensor | None]:
        """The last step of the deepest level (B, H): what `nn.LSTM` calls h_n and c_n."""
        return self.h[-1], None if self.c is None else self.c[-1]

    def repackage(self) -> TrellisState:
        """The paper's repackaging: every level continues from the last step of the deepest. Detached."""
        h, c = self.last
        return TrellisState(h, c).detach()

    def deepest(self) -> TrellisState:
        """The context of the deepest level, from which every level continues: exact at the fixed point."""
        rows = self.spans[-1]
        h, c = self.h[-rows:], None if self.c is None else self.c[-rows:]
        return TrellisState(h, c, self.x, (rows,))

    def detach(self) -> TrellisState:
        """Cut the state from the graph: truncated back-propagation through time."""
        return self._map(Tensor.detach)

    def to(self, *args: Any, **kwargs: Any) -> TrellisState:
        """Move the state to another device or dtype; arguments as those of `Tensor.to`."""
        return self._map(lambda tensor: tensor.to(*args, **kwargs))

    def select(self, rows: Sequence[int] | Tensor) -> TrellisState:
        """The state of some of the sequences, in the order given: to drop, repeat or reorder batch rows."""
        try:
            index = torch.as_tensor(rows, device=self.h.device)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"rows must be a list of batch rows or a mask, got {rows!r}") from None
        index = index if index.numel() else index.long()
        if index.dim() != 1 or index.dtype not in (torch.int64, torch.int32, torch.bool):
            raise ValueError(f"rows must be a list of batch rows or a mask, got {rows!r}")
        if index.dtype == torch.bool:
            if len(index) != self.batch_size:
                raise ValueError(f"rows: a mask must have {self.batch_size} entries, got {len(index)}")
            index = index.nonzero().squeeze(1)
        elif index.numel() and not (int(index.min()) >= 0 and int(index.max()) < self.batch_size):
            raise ValueError(f"rows must lie in 0 .. {self.batch_size - 1}, got {index.tolist()}")
        return self._map(lambda tensor: tensor.index_select(1, index))

    def _map(self, function: Callable[[Tensor], Tensor]) -> TrellisState:
        c = None if self.c is None else function(self.c)
        x = None if self.x is None else function(self.x)
        return replace(self, h=function(self.h), c=c, x=x)

    @property
    def signature(self) -> Hashable:
        """All that decides whether and how a state serves a call: shapes, dtype and devices."""
        c = None if self.c is None else self.c.device
        x = None if self.x is None else (self.x.shape, self.x.device)
        return self.spans, self.h.shape, self.h.dtype, self.h.device, c, x

    @property
    def first_level(self) -> int:
        """0, or 1 where the level below the first layer is zero as usual."""
        return 0 if self.spans[0] else 1

    def context_rows(self, plan: Plan) -> Sequence[int]:
        """The rows of `h` and `c` that are the plan's contexts, level after level from `first_level` on."""
        starts, rows = [0, *accumulate(self.spans)], list[int]()
        for i in range(self.first_level, len(plan.levels)):
            known = min(i, len(self.spans) - 1)
            rows.extend(starts[known] + max(0, self.spans[known] + step) for step in plan.levels[i].context)
        return range(len(rows)) if rows == list(range(len(rows))) else rows

    def take(self, rows: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        """Some rows of `h` and `c`."""
        if isinstance(rows, range) and len(rows) == self.h.shape[0]:
            return self.h, self.c
        if isinstance(rows, range):
            return self.h[: len(rows)], None if self.c is None else self.c[: len(rows)]
        index = torch.tensor(rows, device=self.h.device, dtype=torch.int64)
        return self.h.index_select(0, index), None if self.c is None else self.c.index_select(0, index)


AnyState = TrellisState | tuple[Tensor, Tensor | None] | Tensor


def as_state(state: AnyState | None) -> TrellisState | None:
    """Convert any accepted form of state to a `TrellisState`."""
    if state is None or isinstance(state, TrellisState):
        return state
    if isinstance(state, Tensor):
        return TrellisState(state)
    if isinstance(state, (tuple, list)) and len(state) == 2:
        return TrellisState(*state)
    raise TypeError(f"state must be a TrellisState or a pair (h, c), got {type(state).__name__}")


@dataclass(frozen=True)
class StateForm:
    """The sizes of a net's states: how many rows of each level they keep, and of the input."""

    input_size: int
    hidden_size: int
    has_memory: bool
    kernel_size: int
    dilation: tuple[int, ...]
    input_taps: int
    window: int = 1  # steps that attention sees, the present one included

    def dilations(self, layers: int) -> tuple[int, ...]:
        """The dilation of each layer of a net of n layers."""
        return tuple(self.dilation[i % len(self.dilation)] for i in range(layers))

    def spans(self, levels: int, path: str = "layers") -> tuple[int, ...]:
        """How many steps back each level is read: the rows a state keeps of it."""
        return spans_of(self.dilations(levels), self.kernel_size, path, self.window)

    @property
    def input_span(self) -> int:
        """How many earlier inputs the taps, or attention, read."""
        return max((self.input_taps - 1) * max(self.dilation), self.window - 1)

    def check(self, state: TrellisState, x: Tensor) -> None:
        """Raise an error if a state does not fit this net and x."""
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
        known = [self.spans(len(state.spans), path) for path in ("layers", "sweeps")]
        if len(state.spans) > 1 and not any(
            state.spans[1:] == spans[1:] and state.spans[0] in (0, spans[0]) for spans in known
        ):
            raise ValueError(
                f"state has {state.spans} context rows per level, but this net keeps {known[0]}: another net's?"
            )
        expected = (self.input_span, batch, self.input_size) if self.input_span else None
        inputs = None if state.x is None else tuple(state.x.shape)
        if inputs != expected and (len(state.spans) > 1 or inputs is not None):
            raise ValueError(f"state has inputs of shape {inputs}, but this net keeps {expected}: another net's?")
        for part in (state.h, state.c, state.x):
            if part is not None and part.device != x.device:
                raise ValueError(f"state must be on the device of x, {x.device}, got {part.device}")

    def ends(self, plan: Plan, lengths: Lengths | None, device: torch.device) -> tuple[AnyRows, ...]:
        """For level 1 and up, the rows that the next state keeps; of a plan by steps, those of the last level."""
        spans = plan.spans[1:] if any(plan.spans[1:]) else plan.spans[:1]
        return tuple(self._end(span, plan.wanted, lengths, device) for span in spans)

    @staticmethod
    def _end(span: int, length: int, lengths: Lengths | None, device: torch.device) -> AnyRows:
        """The last `span` rows of a level with `span` context rows: at its end, or at each sequence's own end."""
        if lengths is None:
            return slice(length, length + span)
        rows = torch.as_tensor(lengths, device=device) + torch.arange(span, device=device)[:, None]
        return rows, torch.arange(rows.shape[1], device=device)

    def after(
        self,
        spans: tuple[int, ...],
        x: Tensor,
        state: TrellisState | None,
        lengths: Lengths | None,
        h: Tensor,
        c: Tensor | None,
    ) -> TrellisState:
        """The state after a call: `h` and `c` are the rows at `ends`, the inputs and level 0 are added here.

        One span alone belongs to the last level, from which all levels continue.
        """
        bottom, last_x = 0, None
        if span := self.input_span:
            last_x = self._last(None if state is None else state.x, x, span, lengths)
        if len(spans) == 1:
            return TrellisState(h, c, last_x, spans)
        shortest = x.shape[0] if lengths is None else 1 if isinstance(lengths, Tensor) else min(lengths)
        if state is not None and state.first_level == 0 and shortest < spans[0]:
            # a call shorter than the span after `repackage`: part of the context below the first layer is still seen
            bottom, known = spans[0], state.spans[0]
            old_h, old_c = state.take([max(0, known - bottom + i) for i in range(bottom)])
            zeros = h.new_zeros(x.shape[0], *h.shape[1:])
            h = torch.cat([self._last(old_h, zeros, bottom, lengths), h])
            if c is not None and old_c is not None:
                c = torch.cat([self._last(old_c, zeros, bottom, lengths), c])
        return TrellisState(h, c, last_x, (bottom, *spans[1:]))

    def _last(self, before: Tensor | None, now: Tensor, span: int, lengths: Lengths | None) -> Tensor:
        """The last `span` rows of `before` (None: zeros) and `now` joined; at each sequence's own end."""
        length = now.shape[0]
        if lengths is None and span <= length:
            return (now if span == length else now[-span:]).clone()  # not a view: the caller may overwrite x
        before = now.new_zeros(span, *now.shape[1:]) if before is None else before
        return torch.cat([before, now])[self._end(span, length, lengths, now.device)]


def _flatten(state: TrellisState) -> tuple[list[Any], tuple[int, ...]]:
    return [state.h, state.c, state.x], state.spans


def _unflatten(leaves: Iterable[Any], spans: tuple[int, ...]) -> TrellisState:
    state = object.__new__(TrellisState)  # without checks: tracers use leaves that are not tensors
    for name, value in zip(("h", "c", "x", "spans"), (*leaves, spans), strict=True):
        setattr(state, name, value)
    return state


def _flatten_with_keys(state: TrellisState) -> tuple[list[Any], tuple[int, ...]]:
    return [(GetAttrKey(name), getattr(state, name)) for name in ("h", "c", "x")], state.spans


# a state is an argument and a result of what `torch.export`, `torch.func.vmap` and `torch.compile` trace
register_pytree_node(
    TrellisState,
    _flatten,
    _unflatten,
    serialized_type_name="trellisnet.TrellisState",
    flatten_with_keys_fn=_flatten_with_keys,
    to_dumpable_context=list,
    from_dumpable_context=tuple,  # a saved program keeps JSON, which has no tuples
)

# tensors and numbers only: files with a state are safe for `torch.load` and `torch.export.load`
torch.serialization.add_safe_globals([TrellisState])
