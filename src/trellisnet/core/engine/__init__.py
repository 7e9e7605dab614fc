"""Runs a call: all layers forward and backward as one autograd function, or with ordinary operations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trellisnet.core.engine import plain, step
from trellisnet.core.engine.backward import BackwardWalk
from trellisnet.core.engine.call import Inputs, Outputs, Pass
from trellisnet.core.engine.forward import Grid
from trellisnet.core.engine.pairs import paired_layers
from trellisnet.core.engine.sources import make_inputs
from trellisnet.core.engine.storage import drop_buffer, give_buffer, take_buffer
from trellisnet.core.kernel import Weights
from trellisnet.core.state import TrellisState


def run(call: Pass, weights: Weights, x: Tensor, state: TrellisState | None, mask: Tensor | None) -> Outputs:
    """Compute the plan: in place where the cell allows it, with ordinary operations otherwise and when tracing."""
    in_place = not plain.is_needed(call)
    if in_place and step.is_possible(call):
        return step.run(call, weights, x, state, mask)
    inputs = make_inputs(call, weights, x, state, mask)
    if not in_place:
        return plain.run(call, inputs)
    outputs: Outputs = _Trellis.apply(call, torch.is_grad_enabled(), *inputs.flat())  # type: ignore[no-untyped-call]
    return outputs


class _Trellis(torch.autograd.Function):
    """Keeps for the backward pass what `Keep` chooses: gates and some levels, or only levels."""

    @staticmethod
    def forward(ctx: Any, call: Pass, grad_enabled: bool, *flat: Tensor | None) -> Outputs:
        training = grad_enabled and any(ctx.needs_input_grad)
        inputs = Inputs.of(flat, len(call.blocks))
        paired = paired_layers(call, inputs)
        grid = Grid(call, inputs, paired)
        if not training:
            drop_buffer()  # who evaluates may have done with training
            return grid.forward(None)
        buffer = take_buffer(grid.keep.whole_size, grid.inputs.sources[0])
        outputs = grid.forward(buffer)
        ctx.set_materialize_grads(False)
        ctx.call, ctx.paired, ctx.address, ctx.used_up = call, paired, buffer.data_ptr(), False
        ctx.save_for_backward(*flat, buffer)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        needed, saved = ctx.needs_input_grad[2:], ctx.saved_tensors
        if ctx.used_up:  # an earlier attempt was broken off by an error
            raise RuntimeError("the backward pass through this call cannot be run again: what was kept is used up")
        inputs, buffer = Inputs.of(saved[:-1], len(ctx.call.blocks)), saved[-1]
        # the gradients must be differentiable, or come in batches
        if torch.is_grad_enabled() or any(plain.is_batched(grad) for grad in grads):
            return None, None, *plain.gradients(ctx.call, inputs, grads, needed)
        grid = Grid(ctx.call, inputs, ctx.paired)
        # it is ours to overwrite if the graph ends here, and if no hook has put something else in its place
        reusable = not _graph_is_retained() and buffer.data_ptr() == ctx.address
        ctx.used_up = reusable
        grid.reopen(buffer, reusable)
        found = BackwardWalk(grid, grads, Inputs.of(needed, len(ctx.call.blocks))).run().flat()
        if reusable:
            give_buffer(buffer)
        return None, None, *(grad if need else None for grad, need in zip(found, needed, strict=True))


def _graph_is_retained() -> bool:
    """Whether another backward pass may follow this one; to be on the safe side where torch does not tell."""
    tell = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return tell is None or bool(tell())
