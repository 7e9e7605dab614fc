"""Two nets of the same kind for whole sequences: one reads them forwards, the other backwards."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from trellisnet.models.bodies import make_body, name_of, options_of
from trellisnet.models.body import BodyOutput, State, run_body, run_depths

Lengths = Sequence[int] | Tensor | None


def twin_of(body: nn.Module) -> nn.Module:
    """Return a second body of the same kind, with weights of its own; of a user-defined body a copy."""
    name = name_of(body)
    if name is None:
        return copy.deepcopy(body)
    place = next(body.parameters(), torch.empty(0))
    options = copy.deepcopy(options_of(body))  # a user-defined cell may have parameters
    return make_body(name, cast("int", body.input_size), **options, device=place.device, dtype=place.dtype)


def backwards(x: Tensor, lengths: Lengths) -> Tensor:
    """Reverse the steps of each sequence of x (..., T, B, C) within its own length; padding stays where it is."""
    steps, batch = x.shape[-3:-1]
    if lengths is None:
        return x.flip(-3)
    order = torch.arange(steps, device=x.device)[:, None]
    ends = torch.as_tensor(lengths, device=x.device)
    order = torch.where(order < ends, ends - 1 - order, order)  # (T, B)
    return x[..., order, torch.arange(batch, device=x.device), :]


def run_both(
    body: nn.Module,
    reverse: nn.Module | None,
    x: Tensor,
    state: State = None,
    *,
    lengths: Lengths = None,
    tail: int | None = None,
    depth: int | None = None,
    aux: bool = False,
) -> BodyOutput:
    """Call a body as `run_body` does and, if there is one, its reverse; join their outputs (T, B, D + D).

    With `tail`, each net gives the last steps that it reads: the reverse those at the start of the sequences.

    Raises:
        ValueError: there is a reverse and a state.
    """
    if reverse is not None and state is not None:
        raise ValueError("state must be None: a bidirectional model reads whole sequences, and cannot continue one")
    out = run_body(body, x, state, lengths=lengths, tail=tail, depth=depth, aux=aux)
    if reverse is None:
        return out
    back = run_body(reverse, backwards(x, lengths), lengths=lengths, tail=tail, depth=depth, aux=aux)
    levels = None if out.aux is None or back.aux is None else _joined(out.aux, back.aux, lengths, tail)
    return BodyOutput(_joined(out.output, back.output, lengths, tail), None, levels)


def run_both_depths(
    body: nn.Module,
    reverse: nn.Module | None,
    x: Tensor,
    *,
    depths: Sequence[int | None],
    lengths: Lengths = None,
    tail: int | None = None,
) -> list[Tensor]:
    """Return the outputs of `run_both` at several depths, in one call of each net."""
    outputs, _ = run_depths(body, x, depths=depths, lengths=lengths, tail=tail)
    if reverse is None:
        return outputs
    back, _ = run_depths(reverse, backwards(x, lengths), depths=depths, lengths=lengths, tail=tail)
    return [_joined(*pair, lengths, tail) for pair in zip(outputs, back, strict=True)]


def _joined(output: Tensor, back: Tensor, lengths: Lengths, tail: int | None) -> Tensor:
    return torch.cat([output, back if tail is not None else backwards(back, lengths)], -1)
