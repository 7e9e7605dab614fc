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
    outputs: Outputs = _Trellis.apply(call, len(inputs.weights), *inputs.flat())  # type: ignore[no-untyped-call]
    return outputs


class _Trellis(torch.autograd.Function):
    """Keeps h, c and the gates for the backward pass (an LSTM: six floats a hidden unit and cell), or only h and c."""

    @staticmethod
    def forward(ctx: Any, call: Pass, terms: int, *flat: Tensor | None) -> Outputs:
        training = any(ctx.needs_input_grad)
        grid = Grid(call, Inputs.of(flat, terms))
        outputs = grid.forward(keep_gates=training and not call.recompute)
        if training:
            ctx.set_materialize_grads(False)
            ctx.call, ctx.terms = call, terms
            ctx.save_for_backward(*flat, *grid.hidden, *grid.memory, *grid.gates)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        needed, saved = ctx.needs_input_grad[2:], ctx.saved_tensors
        inputs, rest = Inputs.of(saved[: len(needed)], ctx.terms), saved[len(needed) :]
        if torch.is_grad_enabled():  # a double backward: the gradients themselves must be differentiable
            return None, None, *plain.gradients(ctx.call, inputs, grads, needed)
        grid, levels = Grid(ctx.call, inputs), len(ctx.call.plan.levels)
        grid.hidden, grid.memory = list(rest[:levels]), list(rest[levels : 2 * levels])
        grid.gates = list(rest[2 * levels :])
        found = BackwardWalk(grid, grads, Inputs.of(needed, ctx.terms)).run().flat()
        return None, None, *(grad if need else None for grad, need in zip(found, needed, strict=True))
