"""The body protocol. A body is the net between a model's input and its head; any net that follows it can be trained.

A body maps x (T, B, C) and a state to y (T, B, D) and the next state. It is an `nn.Module` with

    input_size        number C of channels of x
    output_size       number D of channels of y
    receptive_field   number of steps that an output depends on, its own included; None or absent: unlimited
    forward(x, state=None) -> (y, state)

y at step t depends on x up to step t only. The state is a pytree of tensors with the batch in dimension 1, or None
before the first step of a sequence. `forward` may accept further keyword arguments. Models pass those that it names:

    lengths   the length of each sequence of a batch; the returned state is the one at each sequence's own end
    tail      return the last n steps of each sequence only; no state is needed
    depth     number of layers, for bodies whose weights fit any depth
    aux       return the outputs of inner layers (layers, T, B, D) as a third result, one per `aux_every` layers; the
              body has an attribute `aux_every`

Four further attributes are optional. `for_inference()` returns an equal body for many calls on the same weights.
`input_scale` is the bound of the initial embedding values times the square root of the embedding size; None or absent:
the bound is 0.1. `nested_depths` is True if the outputs of inner layers are those of calls of smaller `depth`, so that
one call serves several depths; `aux_every` can then be changed between calls. `added_parts` names submodules without
effect at first: a run can start from the weights of another whose body does not have them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from trellisnet.core.batch import check_lengths
from trellisnet.core.checks import layer_count, positive_int

BATCH_DIM = 1  # of the tensors of a state
State = Any  # a pytree of tensors, or None


def register_output(kind: type[Any]) -> None:
    """Make a dataclass of results a pytree, for `torch.export` and other tools that look for tensors in results."""
    torch.export.register_dataclass(kind, serialized_type_name=f"trellisnet.{kind.__name__}")


@dataclass(eq=False)
class BodyOutput:
    """The results of a body: y (T, B, D), the next state, and the outputs of inner layers (layers, T, B, D)."""

    output: Tensor
    state: State
    aux: Tensor | None = None


register_output(BodyOutput)


def check_body(body: object) -> Any:
    """Return `body` if it has the required attributes of a body.

    Raises:
        TypeError: it is not an `nn.Module`, or a size is not an integer.
        ValueError: a size is below 1.
    """
    if not isinstance(body, nn.Module):
        raise TypeError(f"body must be an nn.Module that follows trellisnet.models.body, got {type(body).__name__}")
    for name in ("input_size", "output_size"):
        positive_int(f"{type(body).__name__}.{name}", getattr(body, name, None))
    return body


@cache
def _accepted(kind: type[Any]) -> frozenset[str]:
    """Return the names of the parameters of a body's `forward`; all optional ones if it takes `**kwargs`."""
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
    """Call a body and check its results.

    If the body does not accept `tail`, the last steps are cut from its whole output. If it does not accept `lengths`,
    the returned state is None, because the body's own state lies after the padding.

    Args:
        body: a module that follows the body protocol.
        x: (T, B, C).
        state: the state to start from; None: the start of a sequence.
        lengths: the length of each sequence; default T.
        tail: return the last n steps of each sequence only, and no state.
        depth: number of layers; default the body's own.
        aux: also return the outputs of inner layers.

    Raises:
        ValueError: the body does not accept `depth` or `aux`, or its results have wrong shapes.
        TypeError: the body does not return a tuple of the right length.
    """
    kind: Any = type(body)
    accepted, name = _accepted(kind), kind.__name__
    lengths = check_lengths(lengths, *x.shape[:2])
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
        after = None  # this state lies after the padding: no sequence can continue from it
    whole = tail is None or "tail" not in accepted
    _check_output(name, output, (len(x) if whole else tail, x.shape[1], body.output_size))
    if tail is not None:
        output, after = _last(output, tail, lengths) if whole else output, None
    _check_state(name, after, x.shape[1])
    return BodyOutput(output, after, cast("Tensor", result[2]) if aux else None)


def at_ends(out: BodyOutput, lengths: Sequence[int] | Tensor | None) -> BodyOutput:
    """The last step of each sequence of whole outputs, as a call with `tail=1` returns it."""
    ends = check_lengths(lengths, *out.output.shape[:2])
    output, aux = _last(out.output, 1, ends), out.aux
    if aux is not None:
        levels = [_last(level, 1, ends) for level in aux]
        aux = torch.stack(levels) if levels else output.new_empty(0, *output.shape)
    return BodyOutput(output, None, aux)


def nests_depths(body: nn.Module) -> bool:
    """Whether one call gives the outputs at several depths: see `nested_depths` of the protocol."""
    return bool(getattr(body, "nested_depths", False))


def run_depths(
    body: nn.Module,
    x: Tensor,
    state: State = None,
    *,
    depths: Sequence[int | None],
    lengths: Sequence[int] | Tensor | None = None,
    tail: int | None = None,
) -> tuple[list[Tensor], State]:
    """Return the outputs at one or several depths, and the state of the deepest, all of one call of the body.

    Args:
        body: a module that follows the body protocol; for several depths one of `nests_depths`.
        x: (T, B, C).
        state: the state to start from, which an equal call returned; None: the start of a sequence.
        depths: numbers of layers; a single None is the body's own.
        lengths: the length of each sequence; default T.
        tail: return the last n steps of each sequence only, and no state.

    Raises:
        ValueError: there are several depths, and the body runs at one depth per call.
    """
    if len(depths) == 1:
        out = run_body(body, x, state, lengths=lengths, tail=tail, depth=depths[0])
        return [out.output], out.state
    if not nests_depths(body):
        raise ValueError(f"body {type(body).__name__} runs at one depth per call, got depths {list(depths)}")
    levels = [layer_count("depths", depth) for depth in depths]
    net, every = cast("Any", body), math.gcd(*levels)
    own, net.aux_every = net.aux_every, every
    try:
        out = run_body(body, x, state, lengths=lengths, tail=tail, depth=max(levels), aux=True)
    finally:
        net.aux_every = own
    assert out.aux is not None
    return [out.aux[level // every - 1] for level in levels], out.state


def _check_output(name: str, output: object, expected: tuple[Any, ...]) -> None:
    if not isinstance(output, Tensor) or tuple(output.shape) != expected:
        raise ValueError(
            f"body {name} must give an output (steps, sequences, output_size) = {expected}, got {_described(output)}"
        )


def _check_state(name: str, state: State, batch_size: int) -> None:
    for leaf in pytree.tree_leaves(state):
        if leaf is not None and not isinstance(leaf, (Tensor, bool, int, float, str)):
            raise TypeError(f"body {name} must give a state that is a pytree of tensors, got {_described(leaf)} in it")
        if isinstance(leaf, Tensor) and (leaf.dim() <= BATCH_DIM or leaf.shape[BATCH_DIM] != batch_size):
            raise ValueError(
                f"body {name} must give a state whose tensors have the batch of {batch_size} in dimension {BATCH_DIM}, "
                f"got {_described(leaf)}"
            )


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__


def _last(output: Tensor, tail: int, lengths: Sequence[int] | Tensor | None) -> Tensor:
    """Cut the last `tail` steps of each sequence from an output with all steps."""
    if not isinstance(lengths, Tensor):
        shortest = len(output) if lengths is None else min(lengths)
        if positive_int("tail", tail) > shortest:
            raise ValueError(f"tail must be at most {shortest} (the shortest sequence), got {tail}")
    if lengths is None:
        return output[-tail:]
    ends = torch.as_tensor(lengths, device=output.device)
    steps = ends - tail + torch.arange(tail, device=output.device)[:, None]  # (tail, B)
    return output.gather(0, steps.unsqueeze(-1).expand(-1, -1, output.shape[-1]))


def accepts(body: nn.Module, option: str) -> bool:
    """Whether the body has an option of its calls: lengths, tail, depth or aux."""
    kind: Any = type(body)
    return option in _accepted(kind)


def needs_state(body: nn.Module, state: State) -> State:
    """Return the state that a call returned.

    Raises:
        ValueError: it is None, so the sequences cannot continue.
    """
    if state is None:
        hint = "" if accepts(body, "lengths") else "; sequences of unequal lengths need a body with `lengths`"
        raise ValueError(f"body {type(body).__name__} returned no state to continue from{hint}")
    return state


def for_inference(body: nn.Module) -> nn.Module:
    """Return an equal body for many calls on the same weights: the body itself if it has no faster form."""
    make = getattr(body, "for_inference", None)
    return body if make is None else cast("nn.Module", make())


def receptive_field(body: nn.Module, depth: int | None = None) -> int | None:
    """Return the number of steps that an output depends on, its own included; None: unlimited."""
    field = getattr(body, "receptive_field", None)
    if field is None or depth is None:
        return cast("int | None", field)
    return cast("int", cast("Any", body).receptive_field_at(depth))


def detach(state: State) -> State:
    """Detach a state from the graph, for truncated back-propagation through time."""
    return pytree.tree_map_only(Tensor, Tensor.detach, state)


def repackage(state: State) -> State:
    """Return the paper's compressed history if the state has a method `repackage`, else the state; detached."""
    make = getattr(state, "repackage", None)
    return detach(state if make is None else make())


def move(state: State, device: torch.device | str) -> State:
    """Move a state to another device."""
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.to(device), state)


def select_rows(state: State, rows: Tensor) -> State:
    """Return the state of the given batch rows, in that order: to drop, repeat or reorder sequences."""
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.index_select(BATCH_DIM, rows.to(tensor.device)), state)


def pack_state(state: State) -> dict[str, Any]:
    """Convert a state to tensors on the CPU and a JSON description of its structure, for a checkpoint.

    Raises:
        TypeError: torch cannot serialise the structure.
    """
    leaves, structure = pytree.tree_flatten(move(state, "cpu"))
    try:
        return {"leaves": leaves, "structure": pytree.treespec_dumps(structure)}
    except (NotImplementedError, TypeError) as error:
        raise TypeError(
            f"a state must be a pytree whose types torch can save, got {type(state).__name__}: {error}"
        ) from None


def unpack_state(packed: dict[str, Any], device: torch.device | str) -> State:
    """Invert `pack_state`; the tensors go to `device`."""
    return move(pytree.tree_unflatten(packed["leaves"], pytree.treespec_loads(packed["structure"])), device)
