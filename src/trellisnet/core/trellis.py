"""TrellisNet: the trellis network as a module to use like `nn.LSTM`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from trellisnet.core import engine
from trellisnet.core.cache import is_traced
from trellisnet.core.call import Pass
from trellisnet.core.cells import Cell, make_cell
from trellisnet.core.checks import one_of, positive_int, positive_ints, probability
from trellisnet.core.history import AnyState, History, as_state
from trellisnet.core.inject import is_narrow, plan_sources
from trellisnet.core.kernel import DenseKernel, Kernel, MixedGroupKernel
from trellisnet.core.layout import Batch, read_batch
from trellisnet.core.plan import Rows, make_plan, take
from trellisnet.core.precision import autocast_dtype, dtypes_for, floating_dtype, without_autocast
from trellisnet.core.state import TrellisState


class TrellisNet(nn.Module):
    """A trellis network: a causal convolution in time whose weights are tied across layers and whose input enters
    every layer (Bai, Kolter, Koltun, ICLR 2019).

    Args:
        input_size: channels of the input.
        hidden_size: channels of every layer. The paper's tables count without the output channels; this does not.
        num_layers: depth of a call that does not choose its own. The weights do not depend on it.
        output_size: the output is the last so many channels; default all.
        cell: "tanh", "relu", "lstm", "gru", or a `Cell` of your own.
        kernel_size: taps of the convolution, at least 2.
        dilation: steps between taps: a number, or a cycle of numbers over the layers.
        bias, batch_first: as in `nn.LSTM`.
        weight_norm: learn direction and length of each gate's weights apart.
        hidden_dropout: variational: one mask a sequence and call, the same at every step of every layer.
        weight_dropout: DropConnect on the kernels, one mask a call.
        drop_all_taps: let DropConnect act on all taps, not only on the older ones as in the paper's experiments.
        inject_every: the input enters the first of every so many layers.
        aux_every: `aux=True` gives the output of every so many layers, for auxiliary losses.
        groups: sizes of channel groups for a mixed-group kernel instead of a dense one: group l reads its own past and
            the present of group l-1, and is zero in the first l-1 layers, as in the proof of theorem 1.
        staggered: sizes of channel groups of which group l is zero in the first l-1 layers; follows from `groups`.
            With a dense kernel, it is what `densify` leaves behind of them.
        memory: what the backward pass needs is stored ("store"), or computed again from h and c of a few layers
            ("recompute").
        init: "uniform", which trains best from scratch, or "paper", the authors' N(0, 0.01).

    >>> net = TrellisNet(3, 16, num_layers=8)
    >>> y, state = net(torch.randn(20, 4, 3))  # (T, B, C), as nn.LSTM
    >>> tuple(y.shape)
    (20, 4, 16)
    >>> y, state = net(torch.randn(1, 4, 3), state)  # goes on where it stopped
    >>> last, _ = net(torch.randn(20, 4, 3), tail=1)  # only the last step, and only the cells it needs
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        output_size: int | None = None,
        cell: str | Cell = "lstm",
        kernel_size: int = 2,
        dilation: int | Sequence[int] = 1,
        bias: bool = True,
        batch_first: bool = False,
        weight_norm: bool = False,
        hidden_dropout: float = 0.0,
        weight_dropout: float = 0.0,
        drop_all_taps: bool = False,
        inject_every: int = 1,
        aux_every: int | None = None,
        groups: Sequence[int] | None = None,
        staggered: Sequence[int] | None = None,
        memory: str = "store",
        init: str = "uniform",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size = positive_int("input_size", input_size)
        self.hidden_size = hidden_size = positive_int("hidden_size", hidden_size)
        self.num_layers = positive_int("num_layers", num_layers)
        self.output_size = hidden_size if output_size is None else positive_int("output_size", output_size)
        if self.output_size > hidden_size:
            raise ValueError(f"output_size must be at most hidden_size = {hidden_size}, got {output_size}")
        self.cell = make_cell(cell)
        self.kernel_size = kernel_size = positive_int("kernel_size", kernel_size, minimum=2)
        self.dilation = positive_ints("dilation", dilation)
        self.batch_first = bool(batch_first)
        self.hidden_dropout = probability("hidden_dropout", hidden_dropout)
        self.inject_every = positive_int("inject_every", inject_every)
        self.aux_every = None if aux_every is None else positive_int("aux_every", aux_every)
        self.groups = None if groups is None else self._check_groups("groups", groups)
        self.staggered = self.groups if staggered is None else self._check_groups("staggered", staggered)
        if self.groups is not None and self.staggered != self.groups:
            raise ValueError(f"staggered follows from groups: expected {self.groups} or None, got {staggered}")
        if self.staggered is not None and num_layers < len(self.staggered):
            reach = f"the last of {len(self.staggered)} groups is zero in the layers before its own"
            raise ValueError(f"num_layers must be at least {len(self.staggered)}, because {reach}, got {num_layers}")
        self.memory = one_of("memory", memory, ("store", "recompute"))
        self.init = one_of("init", init, ("uniform", "paper"))
        options: dict[str, Any] = {
            "kernel_size": kernel_size,
            "bias": bias,
            "weight_norm": weight_norm,
            "weight_dropout": probability("weight_dropout", weight_dropout),
            "drop_all_taps": drop_all_taps,
            "device": device,
            "dtype": floating_dtype("dtype", dtype),
        }
        self.kernel: Kernel
        if self.groups is None:
            self.kernel = DenseKernel(input_size, hidden_size, self.cell, **options)
        else:
            self.kernel = MixedGroupKernel(input_size, self.groups, self.cell, **options)
        self.history = History(
            input_size, hidden_size, self.cell.has_memory, kernel_size, self.dilation, self.kernel.input_taps
        )
        self._described: dict[Any, tuple[Pass, Rows | None]] = {}
        self.reset_parameters()

    def _check_groups(self, name: str, sizes: Sequence[int]) -> tuple[int, ...]:
        sizes = positive_ints(name, sizes)
        if sum(sizes) != self.hidden_size:
            raise ValueError(f"{name} must add up to hidden_size = {self.hidden_size}, got {sizes}, sum {sum(sizes)}")
        return sizes

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
        net = TrellisNet(
            self.input_size,
            self.hidden_size,
            self.num_layers,
            self.output_size,
            copy.deepcopy(self.cell),  # it may have parameters
            self.kernel_size,
            self.dilation,
            bias is not None,
            self.batch_first,
            hidden_dropout=self.hidden_dropout,
            weight_dropout=self.kernel.weight_dropout,
            drop_all_taps=self.kernel.drop_all_taps,
            inject_every=self.inject_every,
            aux_every=self.aux_every,
            staggered=self.staggered,
            memory=self.memory,
            init=self.init,
            device="meta",  # draws no random numbers for weights that are not kept
            dtype=inputs.dtype,
        )
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
