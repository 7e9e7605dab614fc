"""How a call is run fast. One door: `run`.

Every call is a `Call` (what is asked, all but the tensors) and `Inputs` (the tensors). Four ways lead through it:

- `plain.py`: ordinary operations and autograd's gradients. Read it first, after `naive.py`.
- `forward.py` and `backward.py`: level after level in place, as one autograd function. `products.py` has what a layer
  multiplies (`pairs.py`: for pairs of steps), `tiles.py` the order of its steps, `scan.py` the memory along time,
  `storage.py` what is kept where, and `restore.py` recomputes what is not.
- `step.py`: one step of a stream, without gradients.
- `steps.py`: step after step in time.
- `solver.py`: one layer, again and again, until it converges.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trellisnet.core.call import Call, Inputs, Outputs, make_inputs
from trellisnet.core.cells import InPlaceCell
from trellisnet.core.engine import plain, solver, step, steps
from trellisnet.core.engine.backward import backward
from trellisnet.core.engine.forward import forward
from trellisnet.core.engine.storage import Kept, Layout, drop_buffer, give_buffer, take_buffer
from trellisnet.core.kernel import Weights
from trellisnet.core.matmul import is_watched
from trellisnet.core.state import TrellisState
from trellisnet.core.taps import Reader

__all__ = ["run"]


def run(
    call: Call,
    weights: Weights,
    x: Tensor,
    state: TrellisState | None,
    mask: Tensor | None,
    start: tuple[Tensor | None, Tensor | None] = (None, None),
    reader: Reader | None = None,
) -> tuple[Outputs, tuple[int, ...]]:
    """Compute a call on x (T, B, C): in place where possible, else with ordinary operations.

    `reader` makes the taps of a net that does not read as the paper does.

    Returns the output (n, B, output), the outputs of inner levels (levels, n, B, output), and h and c of the state; and
    the number of layers until convergence: one number, or by steps one per step.
    """
    inputs = make_inputs(call, weights, x, state, mask, start)
    if call.repeats:
        if reader is not None or needs_ordinary_operations(call):
            return solver.solve(call, inputs, reader)
        return solver.solve_in_place(call, inputs)
    if reader is not None:
        return plain.run(call, inputs, reader(call, inputs)), ()
    if call.path == "steps":
        return steps.run(call, inputs)
    if needs_ordinary_operations(call):
        return plain.run(call, inputs), ()
    if call.plan.whole and call.plan.wanted == 1 and not call.starts and not torch.is_grad_enabled():
        return step.run(call, inputs), ()
    outputs: Outputs = _InPlace.apply(call, torch.is_grad_enabled(), *inputs.flat())  # type: ignore[no-untyped-call]
    return outputs, ()


def needs_ordinary_operations(call: Call) -> bool:
    """Whether a call cannot run in place: the cell has no gradient of its own, or a tracer or `torch.func` watches."""
    return not isinstance(call.cell, InPlaceCell) or is_watched()


class _InPlace(torch.autograd.Function):
    """The walks up and down as one operation. Between them lives a buffer with what is kept."""

    @staticmethod
    def forward(ctx: Any, call: Call, grad_enabled: bool, *flat: Tensor | None) -> Outputs:
        inputs, layout = Inputs.of(flat, len(call.blocks)), call.derive(Layout)
        if not (grad_enabled and any(ctx.needs_input_grad)):
            for kind in ("kept", "workspace"):  # evaluation usually follows training: free the cached buffers
                drop_buffer(kind)
            return forward(call, inputs, Kept(), inputs.input_weight.new_empty(0))
        buffer = take_buffer("kept", layout.size, inputs.input_weight)
        free = take_buffer("workspace", layout.workspace, buffer)
        outputs = forward(call, inputs, layout.cut(buffer), free)
        give_buffer("workspace", free)
        ctx.set_materialize_grads(False)
        ctx.call, ctx.address, ctx.used_up = call, buffer.data_ptr(), False
        ctx.save_for_backward(*flat, buffer)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        call, needed, saved = ctx.call, ctx.needs_input_grad[2:], ctx.saved_tensors
        if ctx.used_up:  # an earlier attempt failed
            raise RuntimeError("the backward pass through this call cannot be run again: what was kept is used up")
        inputs, buffer, layout = Inputs.of(saved[:-1], len(call.blocks)), saved[-1], call.derive(Layout)
        if torch.is_grad_enabled() or any(_is_batched(grad) for grad in grads):  # must be differentiable, or in batches
            return None, None, *plain.gradients(call, inputs, grads, needed)
        # the buffer is ours to overwrite if the graph ends here, and no hook has put another tensor in its place
        ctx.used_up = not _graph_is_retained() and buffer.data_ptr() == ctx.address
        buffer = buffer if ctx.used_up else buffer.clone()
        free = take_buffer("workspace", layout.workspace, buffer)
        found = backward(call, inputs, grads, Inputs.of(needed, len(call.blocks)), layout.cut(buffer), free)
        give_buffer("workspace", free)
        give_buffer("kept", buffer)
        return None, None, *(grad if need else None for grad, need in zip(found.flat(), needed, strict=True))


def _graph_is_retained() -> bool:
    """Whether another backward pass may follow this one; if torch does not tell, we assume it."""
    tell = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return tell is None or bool(tell())


def _is_batched(tensor: Tensor | None) -> bool:
    """Whether a tensor is a batch of tensors, as with `is_grads_batched`."""
    functorch = torch._C._functorch
    return tensor is not None and (functorch.is_batchedtensor(tensor) or functorch.is_legacy_batchedtensor(tensor))
