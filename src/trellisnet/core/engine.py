"""Runs a call: all layers forward and backward as one autograd function, or with ordinary operations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trellisnet.core import plain, step
from trellisnet.core.backward import BackwardWalk
from trellisnet.core.call import Inputs, Outputs, Pass
from trellisnet.core.forward import Grid


def run(call: Pass, inputs: Inputs) -> Outputs:
    """Compute the plan: in place where the cell allows it, with ordinary operations otherwise and when tracing."""
    if plain.is_needed(call):
        return plain.run(call, inputs)
    if step.is_possible(call):
        return step.run(call, inputs)
    outputs: Outputs = _Trellis.apply(call, len(inputs.weights), torch.is_grad_enabled(), *inputs.flat())  # type: ignore[no-untyped-call]
    return outputs


class _Trellis(torch.autograd.Function):
    """Keeps for the backward pass what `Grid` says: the gates and some levels, or only levels."""

    @staticmethod
    def forward(ctx: Any, call: Pass, terms: int, grad_enabled: bool, *flat: Tensor | None) -> Outputs:
        training = grad_enabled and any(ctx.needs_input_grad)
        grid = Grid(call, Inputs.of(flat, terms))
        outputs = grid.forward(training)
        if training:
            ctx.set_materialize_grads(False)
            ctx.call, ctx.terms = call, terms
            levels = [z[level] for z in (grid.hidden, grid.memory) for level in grid.kept_levels]
            ctx.save_for_backward(*flat, *levels, *(gates for layer in grid.gates.values() for gates in layer))
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        needed, saved = ctx.needs_input_grad[3:], ctx.saved_tensors
        inputs, rest = Inputs.of(saved[: len(needed)], ctx.terms), saved[len(needed) :]
        # the gradients must be differentiable, or come in batches
        if torch.is_grad_enabled() or any(plain.is_batched(grad) for grad in grads):
            return None, None, None, *plain.gradients(ctx.call, inputs, grads, needed)
        grid = Grid(ctx.call, inputs)
        count, blocks = len(grid.kept_levels), len(ctx.call.blocks)
        grid.hidden = dict(zip(grid.kept_levels, rest[:count], strict=True))
        grid.memory = dict(zip(grid.kept_levels, rest[count : 2 * count], strict=True))
        gates = rest[2 * count :]
        grid.gates = {i: list(gates[blocks * i : blocks * (i + 1)]) for i in range(len(gates) // blocks)}
        found = BackwardWalk(grid, grads, Inputs.of(needed, ctx.terms)).run().flat()
        return None, None, None, *(grad if need else None for grad, need in zip(found, needed, strict=True))
