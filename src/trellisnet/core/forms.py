"""Forms of calls: how a call goes through the grid, and the `Call` that the engine gets of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trellisnet.core.batch import Sequences, is_exporting
from trellisnet.core.call import Call
from trellisnet.core.cells import AffineCell
from trellisnet.core.checks import boolean, layer_count, non_negative, one_of, positive_int
from trellisnet.core.plan import AnyRows, Plan, make_plan
from trellisnet.core.precision import autocast_dtype, dtypes_for
from trellisnet.core.state import TrellisState

if TYPE_CHECKING:
    from trellisnet.core.trellis import TrellisNet

MOST_CALLS = 64  # forms of calls that a net keeps
TOLERANCE, MOST_ITERATIONS = 1e-4, 200  # of `depth="converged"`, where nothing else is said

_counts: ContextVar[list[int] | None] = ContextVar("counts of iterations", default=None)


@contextmanager
def counting_iterations() -> Iterator[list[int]]:
    """Give a list to which all calls that converge, of any net, add their `state.iterations`.

    A call with `tail` returns no state, and models call nets out of sight: so they can be counted nevertheless.
    """
    counts: list[int] = []
    before = _counts.set(counts)
    try:
        yield counts
    finally:
        _counts.reset(before)


def counted(iterations: tuple[int, ...]) -> tuple[int, ...]:
    """Return the iterations of a call, after adding them to the list of `counting_iterations`, if there is one."""
    if (counts := _counts.get()) is not None:
        counts.extend(iterations)
    return iterations


@dataclass(frozen=True)
class Form:
    """Path and number of layers of a call."""

    path: str
    depth: int  # with a tolerance: the most layers
    tolerance: float | None
    aux: bool
    starts: bool = False  # from a given level 0; only the last level's state is returned
    repeats: int = 0  # iterate one layer, at most n times, and return all steps of it as the state

    @property
    def solves(self) -> bool:
        """Whether all steps are iterated together until they converge."""
        return self.tolerance is not None and self.path != "steps"

    @property
    def one_level(self) -> bool:
        """Whether the state is that of the last level."""
        return self.tolerance is not None or self.path == "steps"


def read_form(
    net: TrellisNet,
    depth: int | str | None = None,
    path: str | None = None,
    tolerance: float | None = None,
    max_depth: int | None = None,
    aux: bool = False,
) -> Form:
    """Check how a call of a net shall go through the grid."""
    path = one_of("path", net.path if path is None else path, net.paths)
    if path == "sweeps" and not isinstance(net.cell, AffineCell):
        name = type(net.cell).__name__
        raise ValueError(f"path='sweeps' needs a cell whose memory is affine (an AffineCell), got {name}")
    if boolean("aux", aux) and net.aux_every is None:
        raise ValueError("aux=True needs a net with aux_every, got aux_every=None")
    if isinstance(depth, str):
        one_of("depth", depth, ("converged",))
        layers = layer_count("max_depth", MOST_ITERATIONS if max_depth is None else max_depth)
        given = (tolerance, net.tolerance, TOLERANCE)
        tolerance = non_negative("tolerance", next(value for value in given if value is not None))
    else:
        for name, value in (("tolerance", tolerance), ("max_depth", max_depth)):
            if value is not None:
                raise ValueError(f"{name} belongs to depth='converged', got depth={depth} and {name}={value}")
        layers = net.num_layers if depth is None else layer_count("depth", depth)
        tolerance = net.tolerance if depth is None else None
    if tolerance is not None:
        _check_fixed_point(net, aux)
    return Form(path, layers, tolerance, bool(aux))


def _check_fixed_point(net: TrellisNet, aux: bool) -> None:
    """Raise a ValueError if the layers of a net are not all the same map, or a program is traced, which cannot wait."""
    if is_exporting() or torch._C._get_tracing_state() is not None:
        raise ValueError(
            "depth='converged' and tolerance cannot be exported, because the number of layers depends on the values of "
            f"x: set net.tolerance = None, so that it is num_layers = {net.num_layers}, or give a depth"
        )
    asked = "depth='converged' and tolerance need"
    if len(set(net.dilation)) > 1:
        raise ValueError(f"{asked} one dilation for all layers, got dilation={net.dilation}")
    if net.inject_every > 1:
        raise ValueError(f"{asked} the input in every layer, got inject_every={net.inject_every}")
    if aux:
        raise ValueError(f"{asked} aux=False, because the number of layers is not known, got aux=True")


class PlannedCalls(dict[Any, Call]):
    """The calls of a net by their form: each is checked and planned once. Copies and files begin without any."""

    def planned(
        self, net: TrellisNet, sequences: Sequences, state: TrellisState | None, tail: int | None, form: Form
    ) -> Call:
        """The call as the engine sees it, after all checks."""
        tail = None if tail is None else positive_int("tail", tail)
        x = sequences.x
        if _is_traced(x):
            return plan_call(net, sequences, state, tail, form)
        settings = (net.memory, net.inject_every, net.aux_every, net.output_size, net.kernel.dtype)
        asked = (x.shape, x.dtype, x.device, autocast_dtype(x.device.type), sequences.lengths, tail, form)
        key = (asked, settings, net.phantom_layers, None if state is None else state.signature)
        call = self.get(key)
        if call is None:
            if len(self) >= MOST_CALLS:
                self.clear()
            with torch.inference_mode(False):  # it may serve training later
                call = self[key] = plan_call(net, sequences, state, tail, form)
        return call

    def __reduce__(self) -> tuple[type[PlannedCalls], tuple[()]]:
        return PlannedCalls, ()


def _is_traced(x: Tensor) -> bool:
    """Whether a tracer watches, or x is a tensor without numbers: its shape may have symbols, not to be cached."""
    return type(x) is not Tensor or torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def plan_call(net: TrellisNet, sequences: Sequences, state: TrellisState | None, tail: int | None, form: Form) -> Call:
    """Check a call of a net, and say what the engine has to compute."""
    x, sizes, depth = sequences.x, net.state_form, form.depth
    dtype, result_dtype = dtypes_for(x, net.kernel.dtype)
    if state is not None:
        sizes.check(state, x)
    wanted: Sequence[int] | None = None
    picked: AnyRows | None = None
    if form.path == "layers" and form.tolerance is None and net.cones:
        wanted, picked = sequences.wanted(tail)
    elif tail is not None:
        picked = sequences.last(tail)
    plan = make_plan(len(x), wanted, sizes.dilations(depth + 1), net.kernel_size, x.device, form.path, sizes.window)
    # groups are zero in the first layers, but a fixed point does not depend on where the iteration begins
    groups = net.staggered or () if form.tolerance is None else ()
    every = net.aux_every if form.aux and net.aux_every else depth + 1
    return Call(
        plan=plan,
        cell=net.cell,
        blocks=net.kernel.blocks,
        input_size=net.input_size,
        input_taps=net.kernel.input_taps,
        input_span=sizes.input_span,
        inject_every=net.inject_every,
        alive=tuple(sum(groups[: i + 1]) if i < len(groups) - 1 else None for i in range(depth)),
        output=slice(net.hidden_size - net.output_size, net.hidden_size),
        aux=tuple(range(every, depth + 1, every)),
        ends=_ends(net, sequences, plan, form),
        context_rows=None if state is None else state.context_rows(plan),
        first_level=1 if state is None else state.first_level,
        recompute=net.memory == "recompute",
        batch=x.shape[1],
        device=x.device,
        dtype=dtype,
        result_dtype=result_dtype,
        picked=picked,
        path=form.path,
        starts=form.starts,
        repeats=form.repeats,
        tolerance=form.tolerance,
        phantom_layers=min(net.phantom_layers, depth),
    )


def _ends(net: TrellisNet, sequences: Sequences, plan: Plan, form: Form) -> tuple[AnyRows, ...]:
    """The rows of the state to return, per level from the last one on down."""
    if not plan.whole:
        return ()
    if form.repeats:
        return (slice(plan.spans[-1], plan.levels[-1].rows),)
    ends = net.state_form.ends(plan, sequences.lengths, sequences.x.device)
    return ends[-1:] if form.starts else ends
