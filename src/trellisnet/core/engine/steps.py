"""A call step by step in time: at each step all layers, from the final state of the steps before. Like an RNN.

Every layer of a step reads the same older states, so their products are computed once per step, and only the newest tap
waits for the layer below. Ordinary operations, so gradients come from autograd. The state is that of the last level.

With a mixed-group kernel, group l is finished by layer l, and no layer after it changes it: then layer l computes
nothing else, and n groups cost what an RNN of n layers costs.

Shapes: B sequences, H hidden channels, G gates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trellisnet.core.call import Call, Inputs, Outputs
from trellisnet.core.engine.plain import run_cell
from trellisnet.core.taps import Taps

Iterations = tuple[int, ...]


def run(call: Call, inputs: Inputs) -> tuple[Outputs, Iterations]:
    """Compute a call; with a tolerance, also the number of layers that each step needed."""
    return _Steps(call, inputs).run()


class _Steps:
    def __init__(self, call: Call, inputs: Inputs) -> None:
        self.call, self.inputs, self.injected = call, inputs, Taps(call, inputs).injected()
        zero = torch.zeros(call.batch, call.width, dtype=call.dtype, device=call.device)
        self.span, self.zero = call.plan.spans[0], zero
        contexts = (inputs.context_h, inputs.context_c)
        # of the last level, the context first
        self.hidden, self.memory = ([zero] * self.span if z is None else list(z.unbind()) for z in contexts)
        self.newest_tap = len(call.plan.layers[0].taps) - 1
        self.dilations = {layer.dilation for layer in call.plan.layers}
        alike = call.inject_every == 1 and len(self.dilations) == 1
        self.group_by_group = len(call.blocks) > 1 and alike and call.tolerance is None

    def run(self) -> tuple[Outputs, Iterations]:
        call, aux, iterations = self.call, list[Tensor](), list[int]()
        for t in range(call.plan.wanted):
            levels, memory, count = self._step(t)
            iterations.append(count)
            self.hidden.append(levels[-1])
            self.memory.append(memory)
            if call.aux:
                aux.append(torch.stack([levels[level - 1][:, call.output] for level in call.aux]))
        y = torch.stack(self.hidden[self.span :])[..., call.output]
        inner = torch.stack(aux, 1) if aux else None
        used = tuple(iterations) if call.tolerance is not None else ()
        if not call.ends:
            return (y, inner, None, None), used
        h, c = (torch.stack(z)[call.ends[0]] for z in (self.hidden, self.memory))
        return (y, inner, h, c if call.cell.has_memory else None), used

    def _step(self, t: int) -> tuple[list[Tensor], Tensor, int]:
        """The hidden states of all levels at step t, the last memory (B, H), and the number of layers."""
        call = self.call
        older = {dilation: self._older(t, dilation) for dilation in self.dilations}
        if call.tolerance is None:
            levels, memory = self._layers(t, older, call.depth, self.zero)
            return levels, memory, call.depth
        with torch.no_grad():
            solved, _ = self._layers(t, older, call.depth - call.phantom_layers, self.zero, call.tolerance)
        # only the last few layers have gradients; they run in any case, so that the function is the same without them
        levels, memory = self._layers(t, older, call.phantom_layers, solved[-1] if solved else self.zero)
        return levels, memory, len(solved) + call.phantom_layers

    def _layers(
        self, t: int, older: dict[int, list[Tensor]], most: int, h: Tensor, tolerance: float | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """Run n layers, or until one changes the hidden state by no more than the tolerance."""
        levels, memory = [], self.zero
        for i in range(most):
            below = h
            h, memory = self._layer(t, i, older[self.call.plan.layers[i].dilation], below, memory)
            levels.append(h)
            if tolerance is not None and float((h - below).abs().max()) <= tolerance:
                break
        return levels, memory

    def _layer(self, t: int, i: int, older: list[Tensor], below: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The hidden state and the memory of layer i; `memory` is that of the layer below, for groups it leaves."""
        call, injected = self.call, self.injected[i]
        before, parts = self.memory[self.span + t - call.plan.layers[i].dilation], []
        for b, block in enumerate(call.blocks):
            if self.group_by_group and b != i:
                parts.append((below[:, block.channels], memory[:, block.channels]))
                continue
            pre = older[b]
            if b == 0 and injected is not None:
                pre = pre + injected[t]
            for term in block.terms:
                if term.tap == self.newest_tap and below is not self.zero:
                    pre = pre.addmm(below[:, term.channels], self.inputs.weights[b][term.rows])
            pre = pre.unflatten(-1, (call.cell.gates, -1))
            h, c = run_cell(call.cell, pre, before[:, block.channels] if call.cell.has_memory else None)
            h = h if self.inputs.mask is None else h * self.inputs.mask[:, block.channels]
            parts.append((h, c))
        h, c = parts[0] if len(parts) == 1 else (torch.cat(both, -1) for both in zip(*parts, strict=True))
        if (alive := call.alive[i]) is not None and not self.group_by_group:
            h, c = (torch.cat([z[:, :alive], torch.zeros_like(z[:, alive:])], -1) for z in (h, c))
        return h, c

    def _older(self, t: int, dilation: int) -> list[Tensor]:
        """Per block, the bias and the products of the older taps (B, G*H)."""
        sums = []
        for b, block in enumerate(self.call.blocks):
            weight, bias = self.inputs.weights[b], self.inputs.biases[b]
            pre = self.zero.new_zeros(self.call.gate_widths[b]) if bias is None else bias
            pre = pre.expand(self.call.batch, -1)
            for term in block.terms:
                if term.tap < self.newest_tap:
                    row = self.span + t - (self.newest_tap - term.tap) * dilation
                    pre = torch.addmm(pre, self.hidden[row][:, term.channels], weight[term.rows])
            sums.append(pre)
        return sums
