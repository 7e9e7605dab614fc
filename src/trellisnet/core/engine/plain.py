"""A call with ordinary operations only: for tracing and export, `torch.func`, double backward, and cells of one's own.

The same plan and the same sums as the in-place walk, and what autograd makes of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trellisnet.core.cells import Cell, InPlaceCell
from trellisnet.core.engine.call import Inputs, Outputs, Pass
from trellisnet.core.plan import take


def is_needed(call: Pass) -> bool:
    """Whether this call cannot run in place: a cell without a gradient of its own, or a tracer watching."""
    return (
        not isinstance(call.cell, InPlaceCell)
        or torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or is_transformed()
        or torch.autograd.forward_ad._current_level >= 0
    )


def is_transformed() -> bool:
    """Whether a transformation of `torch.func` is at work."""
    return torch._C._functorch.maybe_current_level() is not None


def is_batched(tensor: Tensor | None) -> bool:
    """Whether a tensor stands for a batch of tensors, as with `is_grads_batched`."""
    functorch = torch._C._functorch
    return tensor is not None and (functorch.is_batchedtensor(tensor) or functorch.is_legacy_batchedtensor(tensor))


def run(call: Pass, inputs: Inputs) -> Outputs:
    """Compute the plan, level after level."""
    plan, wanted = call.plan, call.plan.wanted
    sources = [source if source.dim() == 1 else inputs.product(source) for source in inputs.sources]
    hidden, memory = [_level(call, inputs, 0, inputs.context_h)], [_level(call, inputs, 0, inputs.context_c)]
    for i, layer in enumerate(plan.layers):
        parts = []
        for b, block in enumerate(call.blocks):
            pre = _source(call, sources, i, b, inputs.batch)
            for term in block.terms:
                pre = pre + take(hidden[i], layer.taps[term.tap])[..., term.channels] @ inputs.weights[b][term.rows]
            before = take(memory[i], layer.memory)[..., block.channels] if call.cell.has_memory else None
            parts.append(_run_cell(call.cell, pre.unflatten(-1, (call.cell.gates, -1)), before))
        h = torch.cat([part[0] for part in parts], -1)
        h = h if inputs.mask is None else h * inputs.mask
        c = torch.cat([part[1] for part in parts], -1) if call.cell.has_memory else h  # type: ignore[misc]
        if (alive := call.alive[i]) is not None:
            h, c = (torch.cat([z[..., :alive], torch.zeros_like(z[..., alive:])], -1) for z in (h, c))
        hidden.append(_level(call, inputs, i + 1, inputs.context_h, h))
        memory.append(_level(call, inputs, i + 1, inputs.context_c, c))
    aux = torch.stack([hidden[level][-wanted:, :, call.output] for level in call.aux]) if call.aux else None
    y = hidden[-1][-wanted:, :, call.output]
    if not call.ends:
        return y, aux, None, None
    states = [torch.cat([take(z, rows) for z, rows in zip(zs[1:], call.ends, strict=True)]) for zs in (hidden, memory)]
    return y, aux, states[0], states[1] if call.cell.has_memory else None


def _run_cell(cell: Cell, pre: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Run a cell that may be the user's own, and check what it returns."""
    result = cell(pre, before)
    expected = (*pre.shape[:-2], pre.shape[-1])
    fits = isinstance(result, tuple) and len(result) == 2 and getattr(result[0], "shape", None) == expected
    if not fits or (cell.has_memory and getattr(result[1], "shape", None) != expected):
        memory = "a memory" if cell.has_memory else "None"
        raise ValueError(
            f"cell {type(cell).__name__} must return a pair: a hidden state of shape {expected} and {memory}"
        )
    return result


def _level(call: Pass, inputs: Inputs, level: int, context: Tensor | None, computed: Tensor | None = None) -> Tensor:
    """A level in storage order: its left context, then what was computed (below the first layer: zeros)."""
    if computed is None:
        computed = inputs.sources[0].new_zeros(len(call.plan.levels[level].steps), inputs.batch, call.width)
    known = len(call.plan.levels[level].context)
    if not known:
        return computed
    if context is None or level < call.first_level:
        left = computed.new_zeros(known, *computed.shape[1:])
    else:
        left = context[call.context(level)]
    return torch.cat([left, computed])


def _source(call: Pass, sources: list[Tensor], i: int, b: int, batch: int) -> Tensor:
    s, rows, width = call.sources[i][b], call.plan.layers[i].rows, call.gate_widths[b]
    source = sources[0].new_zeros(width) if s is None else sources[s]
    return source.expand(rows, batch, width) if source.dim() == 1 else source[-rows:]


def gradients(
    call: Pass, inputs: Inputs, grads: tuple[Tensor | None, ...], needed: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """The gradients of the inputs that are needed: differentiable, if gradients are enabled."""
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # aliases: one input may have been computed from another, and only what flows through this call may count
        flat = tuple(
            z.view_as(z) if need and z is not None else z for z, need in zip(inputs.flat(), needed, strict=True)
        )
        outputs = run(call, Inputs.of(flat, len(inputs.weights)))
    asked = [z for z, need in zip(flat, needed, strict=True) if need and z is not None]
    pairs = [(out, grad) for out, grad in zip(outputs, grads, strict=True) if out is not None and grad is not None]
    ends, starts = [out for out, _ in pairs], [grad for _, grad in pairs]
    found = iter(torch.autograd.grad(ends, asked, starts, create_graph=create_graph, allow_unused=True))
    return tuple(
        next(found) if need and tensor is not None else None for tensor, need in zip(flat, needed, strict=True)
    )
