"""TrellisNet: the trellis network as a module to use like `nn.LSTM`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from trellisnet.core import engine
from trellisnet.core.batch import Batch, read_batch
from trellisnet.core.cache import is_traced
from trellisnet.core.cells import Cell, make_cell
from trellisnet.core.checks import positive_int
from trellisnet.core.engine.call import Pass
from trellisnet.core.engine.sources import is_narrow, plan_sources
from trellisnet.core.kernel import DenseKernel, Kernel, MixedGroupKernel
from trellisnet.core.options import TrellisOptions, declared_by
from trellisnet.core.plan import Rows, make_plan, take
from trellisnet.core.precision import autocast_dtype, dtypes_for, floating_dtype, without_autocast
from trellisnet.core.state import AnyState, History, TrellisState, as_state


@dataclass(eq=False, repr=False)
class _Arguments(TrellisOptions):
    device: torch.device | str | None = None
    dtype: torch.dtype | None = None


class TrellisNet(TrellisOptions, nn.Module):
    """A trellis network: a causal convolution in time whose weights are tied across layers and whose input enters
    every layer (Bai, Kolter, Koltun, ICLR 2019).

    Args:
        input_size: channels of the input.
        options: those of `TrellisOptions`; the net has each of them as an attribute.
        device, dtype: of the weights; default torch's.

    >>> net = TrellisNet(3, 16, num_layers=8)
    >>> y, state = net(torch.randn(20, 4, 3))  # (T, B, C), as nn.LSTM
    >>> tuple(y.shape)
    (20, 4, 16)
    >>> y, state = net(torch.randn(1, 4, 3), state)  # goes on where it stopped
    >>> last, _ = net(torch.randn(20, 4, 3), tail=1)  # only the last step, and only the cells it needs
    """

    output_size: int  # as the checks of `TrellisOptions` leave them
    cell: Cell
    dilation: tuple[int, ...]

    @declared_by(_Arguments)
    def __init__(
        self,
        input_size: int,
        *args: Any,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        nn.Module.__init__(self)
        self.input_size = positive_int("input_size", input_size)
        TrellisOptions.__init__(self, *args, **options)
        self.cell = make_cell(self.cell)
        kind = DenseKernel if self.groups is None else MixedGroupKernel
        self.kernel: Kernel = kind(
            self.input_size, self.cell, self, device=device, dtype=floating_dtype("dtype", dtype)
        )
        self.history = History(
            self.input_size,
            self.hidden_size,
            self.cell.has_memory,
            self.kernel_size,
            self.dilation,
            self.kernel.input_taps,
        )
        self._described: dict[Any, tuple[Pass, Rows | None]] = {}
        self.reset_parameters()

    @property
    def options(self) -> TrellisOptions:
        """The options as they are now: attributes of a net can be changed."""
        return TrellisOptions(**{field.name: getattr(self, field.name) for field in fields(TrellisOptions)})

    def reset_parameters(self) -> None:
        """Draw the weights anew, as `init` says."""
        self.kernel.reset_parameters(self.init, self.hidden_size)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}, output_size={self.output_size}"

    @property
    def receptive_field(self) -> int:
        """How many steps of the input an output can depend on, its own step included."""
        return self.receptive_field_at(None)

    def receptive_field_at(self, depth: int | None) -> int:
        """The receptive field of a call with a depth of its own."""
        spans = self.history.spans(self.num_layers if depth is None else positive_int("depth", depth))
        if self.groups is None:
            return 1 + sum(spans)
        # the input enters group 1 at the newest tap only, and a layer spent on crossing to the next group looks no
        # further back; the output's first group decides how often that must happen
        crossings = sum(b.channels.stop <= self.hidden_size - self.output_size for b in self.kernel.blocks)
        return 1 + sum(sorted(spans[1:])[min(crossings, len(spans) - 1) :])

    def densify(self) -> TrellisNet:
        """An equal net with a dense kernel, in which training can go on without the constraint of the groups."""
        inputs, hidden, bias = self.kernel.dense_weights(dropped=False)
        cell = copy.deepcopy(self.cell)  # it may have parameters
        options = replace(self.options, cell=cell, groups=None, weight_norm=False)
        # on `meta` no random numbers are drawn for weights that are not kept
        net = TrellisNet(self.input_size, **vars(options), device="meta", dtype=inputs.dtype)
        net.kernel.to_empty(device=inputs.device)
        net.kernel.set_weight("weight_input", inputs)
        net.kernel.set_weight("weight_hidden", hidden)
        if bias is not None:
            net.kernel.set_weight("bias", bias)
        return net.train(self.training)

    def forward(
        self,
        x: Tensor | PackedSequence,
        state: AnyState | None = None,
        *,
        lengths: Sequence[int] | Tensor | None = None,
        tail: int | None = None,
        depth: int | None = None,
        aux: bool = False,
    ) -> tuple[Any, ...]:
        """Run sequences through the net.

        Args:
            x: (T, B, C), (B, T, C) with `batch_first`, (T, C), or a `PackedSequence`.
            state: what an earlier call returned, to go on from there; or a pair (h, c), each (B, H), from which every
                layer starts.
            lengths: where the sequences end; outputs beyond are zero.
            tail: only the last so many steps of each sequence, and only the cells they need.
            depth: number of layers; default `num_layers`.
            aux: also return the outputs of every `aux_every`-th layer.

        Returns:
            The output in the form of `x`; with `tail` always a tensor. The state at each sequence's end; with `tail`
            None, because the cells it would need are not computed. With `aux`, the outputs of those layers,
            stacked along a new first dimension.
        """
        batch, before = read_batch(x, lengths, self.batch_first, self.input_size), as_state(state)
        call, picked = self._describe(batch, before, tail, depth, aux)
        after, padding = None, batch.padding()
        with without_autocast(batch.x.device.type):
            weights, steps = self.kernel.materialise(call.dtype), batch.x.to(call.dtype)
            if padding is not None:
                steps = steps.masked_fill(padding, 0)  # whatever stands there must not reach the weights' gradients
            if before is not None and before.h.dtype != call.dtype:
                before = before.to(call.dtype)
            y, aux_y, h, c = engine.run(call, weights, steps, before, self._mask(steps))
            if h is not None:
                after = self.history.after(call.plan, steps, before, batch.lengths, h, c)

        def finish(output: Tensor) -> Tensor:  # (T, B, C)
            output = output.to(call.result_dtype)
            if picked is not None:
                return take(output, picked)
            return output if padding is None or tail is not None else output.masked_fill(padding, 0)

        outputs = [finish(y)]
        if aux:
            levels = [] if aux_y is None else [finish(level) for level in aux_y]
            outputs.append(torch.stack(levels) if levels else outputs[0].new_empty(0, *outputs[0].shape))
        results = [batch.restore(output, whole=tail is None) for output in outputs]
        return results[0], after, *results[1:]

    def _describe(
        self, batch: Batch, state: TrellisState | None, tail: int | None, depth: int | None, aux: bool
    ) -> tuple[Pass, Rows | None]:
        """The call as the engine sees it, after all checks, and which of the wanted steps each sequence picks.

        It is remembered: a call like an earlier one, and every step of a stream is, need not be checked again.
        """
        depth = self.num_layers if depth is None else positive_int("depth", depth)
        tail = None if tail is None else positive_int("tail", tail)
        x = batch.x
        if batch.lengths is not None or is_traced(x):
            return self._checked(batch, state, tail, depth, aux)
        settings = (self.memory, self.inject_every, self.aux_every, self.output_size, self.kernel.dtype)
        asked = (x.shape, x.dtype, x.device, autocast_dtype(x.device.type), tail, depth, bool(aux))
        key = (asked, settings, None if state is None else state.form)
        known = self._described.get(key)
        if known is None:
            if len(self._described) >= 256:
                self._described.clear()
            known = self._described[key] = self._checked(batch, state, tail, depth, aux)
        return known

    def _checked(
        self, batch: Batch, state: TrellisState | None, tail: int | None, depth: int, aux: bool
    ) -> tuple[Pass, Rows | None]:
        if aux and self.aux_every is None:
            raise ValueError("aux=True needs a net with aux_every, got aux_every=None")
        (wanted, picked), x, span = batch.wanted(tail), batch.x, self.history.input_span
        plan = make_plan(len(x), wanted, self.history.dilations(depth + 1), self.kernel_size, x.device)
        dtype, result_dtype = dtypes_for(x, self.kernel.dtype)
        if state is not None:
            self.history.check(state, x)
        groups, every = self.staggered or (), self.aux_every if aux and self.aux_every else depth + 1
        table, recipes = plan_sources(plan, self.kernel, span, self.inject_every, x.device)
        call = Pass(
            plan=plan,
            cell=self.cell,
            blocks=self.kernel.blocks,
            sources=table,
            alive=tuple(sum(groups[: i + 1]) if i < len(groups) - 1 else None for i in range(depth)),
            output=slice(self.hidden_size - self.output_size, self.hidden_size),
            aux=tuple(range(every, depth + 1, every)),
            ends=self.history.ends(plan, batch.lengths, x.device) if plan.whole else (),
            first_level=1 if state is None else state.first_level,
            recipes=recipes,
            input_span=span,
            narrow=is_narrow(self.kernel.input_taps * self.input_size),
            recompute=self.memory == "recompute",
            dtype=dtype,
            result_dtype=result_dtype,
        )
        return call, picked

    def _mask(self, x: Tensor) -> Tensor | None:
        if not (self.training and self.hidden_dropout):
            return None
        kept = 1 - self.hidden_dropout
        return x.new_empty(x.shape[1], self.hidden_size).bernoulli_(kept).div_(kept)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_described": {}}  # copies and files need no cache
