"""A body: the net between a model's input and its head. Whatever follows the protocol here can be trained and used.

A body maps x (T, B, C) and a state to y (T, B, D) and the state after it. It is an `nn.Module` with

    input_size        channels C of x
    output_size       channels D of y
    receptive_field   the steps that an output depends on, its own included; None or absent: no limit
    forward(x, state=None) -> (y, state)

y at step t depends on x up to step t only. The state is a pytree of tensors with the batch in dimension 1, and None
before the first step of a sequence. A body whose `forward` has more keyword arguments is asked for more:

    lengths   where the sequences of a batch end: the state is then that at each sequence's own end
    tail      only the last n steps of each sequence are wanted, and no state
    depth     number of layers, for bodies whose weights serve any depth
    aux       give the outputs of inner layers (layers, T, B, D) as a third result; the body says every how many layers
              in its attribute `aux_every`

`for_inference()`, if there is one, gives an equal body for many calls on the same weights. `input_scale`, if there is
one and it is not None, is the bound of the embedding's first values times the root of its size.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from trellisnet.core.checks import positive_int

BATCH = 1  # the dimension of a state's tensors that belongs to the sequences
State = Any  # a pytree of tensors, or None


@dataclass(frozen=True, eq=False)
class BodyOutput:
    """What a body gives: y (T, B, D), the state after it, and outputs of inner layers (layers, T, B, D)."""

    output: Tensor
    state: State
    aux: Tensor | None = None


def check_body(body: object) -> Any:
    """Return `body` if it looks like one, or raise an error that says what is missing."""
    if not isinstance(body, nn.Module):
        raise TypeError(f"body must be an nn.Module that follows trellisnet.models.body, got {type(body).__name__}")
    for name in ("input_size", "output_size"):
        positive_int(f"{type(body).__name__}.{name}", getattr(body, name, None))
    return body


@cache
def _accepted(kind: type[Any]) -> frozenset[str]:
    """The keyword arguments that a body's `forward` takes beside x and the state."""
    parameters = inspect.signature(kind.forward).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return frozenset(("lengths", "tail", "depth", "aux"))
    return frozenset(parameter.name for parameter in parameters)


def run_body(
    body: nn.Module,
    x: Tensor,
    state: State = None,
    *,
    lengths: Sequence[int] | Tensor | None = None,
    tail: int | None = None,
    depth: int | None = None,
    aux: bool = False,
) -> BodyOutput:
    """Call a body, do for it what it cannot do itself, and check what it returns."""
    kind: Any = type(body)
    accepted, name = _accepted(kind), kind.__name__
    options: dict[str, Any] = {"lengths": lengths, "tail": tail, "depth": depth, "aux": aux or None}
    given = {key: value for key, value in options.items() if value is not None}
    for key in ("depth", "aux"):
        if key in given and key not in accepted:
            raise ValueError(f"{key} is no option of the body {name}: got {key}={given[key]}")
    result = body(x, state, **{key: value for key, value in given.items() if key in accepted})
    if not isinstance(result, tuple) or len(result) != (3 if aux else 2):
        expected = "(y, state, aux)" if aux else "(y, state)"
        raise TypeError(f"body {name} must return {expected}, got {_described(result)}")
    output, after = result[0], result[1]
    if "lengths" in given and "lengths" not in accepted:
        after = None  # it is the state after the padding, which nobody may go on from
    whole = tail is None or "tail" not in accepted
    _check_output(name, output, (len(x) if whole else tail, x.shape[1], body.output_size))
    if tail is not None:
        output, after = _last(output, tail, lengths) if whole else output, None
    _check_state(name, after, x.shape[1])
    return BodyOutput(output, after, cast("Tensor", result[2]) if aux else None)


def _check_output(name: str, output: object, expected: tuple[Any, ...]) -> None:
    if not isinstance(output, Tensor) or tuple(output.shape) != expected:
        raise ValueError(
            f"body {name} must give an output (steps, sequences, output_size) = {expected}, got {_described(output)}"
        )


def _check_state(name: str, state: State, batch: int) -> None:
    for leaf in pytree.tree_leaves(state):
        if leaf is not None and not isinstance(leaf, (Tensor, bool, int, float, str)):
            raise TypeError(f"body {name} must give a state that is a pytree of tensors, got {_described(leaf)} in it")
        if isinstance(leaf, Tensor) and (leaf.dim() <= BATCH or leaf.shape[BATCH] != batch):
            raise ValueError(
                f"body {name} must give a state whose tensors have the batch of {batch} in dimension {BATCH}, "
                f"got {_described(leaf)}"
            )


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__


def _last(output: Tensor, tail: int, lengths: Sequence[int] | Tensor | None) -> Tensor:
    """The last `tail` steps of each sequence, of an output with all steps."""
    if lengths is None:
        return output[-tail:]
    ends = torch.as_tensor(lengths, device=output.device)
    steps = ends - tail + torch.arange(tail, device=output.device)[:, None]  # (tail, B)
    return output.gather(0, steps.unsqueeze(-1).expand(-1, -1, output.shape[-1]))


def needs_state(body: nn.Module, state: State) -> State:
    """The state that a call left, for one who must go on from it."""
    if state is None:
        raise ValueError(f"body {type(body).__name__} gave no state to go on from, which this needs")
    return state


def for_inference(body: nn.Module) -> nn.Module:
    """An equal body for many calls on the same weights."""
    make = getattr(body, "for_inference", None)
    return body if make is None else cast("nn.Module", make())


def receptive_field(body: nn.Module, depth: int | None = None) -> int | None:
    """The steps that an output depends on, its own included; None: no limit."""
    field = getattr(body, "receptive_field", None)
    if field is None or depth is None:
        return cast("int | None", field)
    return cast("int", cast("Any", body).receptive_field_at(depth))


def detach(state: State) -> State:
    """The same state, cut from the graph: truncated back-propagation through time."""
    return pytree.tree_map_only(Tensor, Tensor.detach, state)


def repackage(state: State) -> State:
    """The paper's compressed history where the state has one, otherwise the state itself; detached."""
    make = getattr(state, "repackage", None)
    return detach(state if make is None else make())


def move(state: State, device: torch.device | str) -> State:
    """The same state on another device."""
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.to(device), state)


def select_rows(state: State, rows: Tensor) -> State:
    """The state of some of the sequences, in the order given: to drop, repeat or reorder them."""
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.index_select(BATCH, rows.to(tensor.device)), state)


def pack_state(state: State) -> dict[str, Any]:
    """A state as tensors and a text that tells how they belong together, to be saved; on the CPU."""
    leaves, structure = pytree.tree_flatten(move(state, "cpu"))
    try:
        return {"leaves": leaves, "structure": pytree.treespec_dumps(structure)}
    except (NotImplementedError, TypeError) as error:
        raise TypeError(
            f"a state must be a pytree whose types torch can save, got {type(state).__name__}: {error}"
        ) from None


def unpack_state(packed: dict[str, Any], device: torch.device | str) -> State:
    """The inverse of `pack_state`."""
    return move(pytree.tree_unflatten(packed["leaves"], pytree.treespec_loads(packed["structure"])), device)
