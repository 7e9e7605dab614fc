"""A call with ordinary operations: the engine to read after `naive.py`.

It computes the same cells as the fast walks, layer by layer, and leaves the gradients to autograd. It serves whatever
those cannot: tracing and export, `torch.func`, double backward, and cells of the user's own.

Shapes: n rows (steps) of a level, B sequences, H hidden channels, G gates.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trellisnet.core.call import Call, Inputs, Outputs
from trellisnet.core.cells import AffineCell, Cell
from trellisnet.core.engine.scan import scan
from trellisnet.core.taps import Taps


def run(call: Call, inputs: Inputs, taps: Taps | None = None) -> Outputs:
    """Compute every level of the plan from the one below it, as the taps (default the paper's) read it."""
    taps = taps or Taps(call, inputs)
    injected = taps.injected()  # per layer (n, B, G*H), or None
    hidden = [_with_context(call, 0, inputs.context_h, inputs.start_h)]
    memory = [_with_context(call, 0, inputs.context_c, inputs.start_c)]
    for i, layer in enumerate(call.plan.layers):
        h_parts, c_parts = [], []
        reads = taps.hidden(i, hidden[i])
        remembered = taps.memory(i, memory[i]) if call.cell.has_memory and call.path != "sweeps" else None
        for b, block in enumerate(call.blocks):
            pre = _added(call, inputs, i, b, injected[i])
            for term in block.terms:
                pre = pre + reads[term.tap][..., term.channels] @ inputs.weights[b][term.rows]
            pre = pre.unflatten(-1, (call.cell.gates, -1))
            if call.path == "sweeps":
                context = _context(call, i + 1, inputs.context_c)[-layer.dilation :, :, block.channels]
                h, c = _sweep_cell(call.cell, pre, context, layer.dilation)
            else:
                before = None if remembered is None else remembered[..., block.channels]
                h, c = run_cell(call.cell, pre, before)
            h_parts.append(h)
            c_parts.append(c)
        h, c = torch.cat(h_parts, -1), torch.cat(c_parts, -1)
        h = h if inputs.mask is None else h * inputs.mask
        if (alive := call.alive[i]) is not None:
            h, c = (torch.cat([z[..., :alive], torch.zeros_like(z[..., alive:])], -1) for z in (h, c))
        hidden.append(_with_context(call, i + 1, inputs.context_h, h))
        memory.append(_with_context(call, i + 1, inputs.context_c, c))
    return _outputs(call, hidden, memory)


def _added(call: Call, inputs: Inputs, i: int, b: int, injected: Tensor | None) -> Tensor:
    """What layer i adds to the products of block b: the bias, and in the first block the input's part."""
    bias = inputs.biases[b]
    if bias is None:
        bias = inputs.input_weight.new_zeros(call.gate_widths[b])
    if b == 0 and injected is not None:
        return injected + bias
    return bias.expand(call.plan.layers[i].rows, call.batch, -1)


def _sweep_cell(cell: Cell, pre: Tensor, context: Tensor, dilation: int) -> tuple[Tensor, Tensor]:
    """Run a cell along time: from pre-activations (n, B, G, H) and the memories (dilation, B, H) before them."""
    assert isinstance(cell, AffineCell)
    gates, expected = cell.activate(pre), (*pre.shape[:-2], pre.shape[-1])
    try:
        factor, offset = (
            torch.as_tensor(z, dtype=pre.dtype, device=pre.device).expand(expected) for z in cell.affine(gates)
        )
    except (TypeError, ValueError, RuntimeError):
        name = type(cell).__name__
        raise ValueError(f"cell {name}: affine must return a factor and an offset of shape {expected}") from None
    memory = scan(factor, offset, context, dilation)
    return _checked(cell, (cell.expose(gates, memory), memory), expected)


def run_cell(cell: Cell, pre: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
    """Run a cell that may be the user's own, and check what it returns.

    The memory of a cell without one is a placeholder that nothing reads: its hidden state.
    """
    return _checked(cell, cell(pre, before), (*pre.shape[:-2], pre.shape[-1]))


def _checked(cell: Cell, result: Any, expected: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    fits = isinstance(result, tuple) and len(result) == 2 and getattr(result[0], "shape", None) == expected
    if not fits or (cell.has_memory and getattr(result[1], "shape", None) != expected):
        memory = "a memory" if cell.has_memory else "None"
        raise ValueError(
            f"cell {type(cell).__name__} must return a pair: a hidden state of shape {expected} and {memory}"
        )
    return result[0], result[0] if result[1] is None else result[1]


def _with_context(call: Call, level: int, contexts: Tensor | None, computed: Tensor | None = None) -> Tensor:
    """A level in storage order: its left context, then what was computed (level 0: zeros)."""
    if computed is None:
        computed = _zeros(call, len(call.plan.levels[level].steps))
    return torch.cat([_context(call, level, contexts), computed]) if call.plan.spans[level] else computed


def _context(call: Call, level: int, contexts: Tensor | None) -> Tensor:
    """The left context of a level."""
    if contexts is None or level < call.first_level:
        return _zeros(call, call.plan.spans[level])
    return contexts[call.contexts[level]]


def _zeros(call: Call, rows: int) -> Tensor:
    return torch.zeros((), dtype=call.dtype, device=call.device).expand(rows, call.batch, call.width)


def _outputs(call: Call, hidden: list[Tensor], memory: list[Tensor]) -> Outputs:
    """What the call returns of its levels."""
    outputs = [h[-call.plan.wanted :, :, call.output] for h in hidden]
    aux = torch.stack([outputs[level] for level in call.aux]) if call.aux else None
    if not call.ends:
        return outputs[-1], aux, None, None
    first = len(hidden) - len(call.ends)
    h, c = (torch.cat([z[rows] for z, rows in zip(zs[first:], call.ends, strict=True)]) for zs in (hidden, memory))
    return outputs[-1], aux, h, c if call.cell.has_memory else None


def gradients(
    call: Call, inputs: Inputs, grads: tuple[Tensor | None, ...], needed: tuple[bool, ...]
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
    return tuple(next(found) if need and z is not None else None for z, need in zip(flat, needed, strict=True))
