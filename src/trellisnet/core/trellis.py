"""TrellisNet: the trellis network as a module to use like `nn.LSTM`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from trellisnet.core.batch import Sequences, read_sequences
from trellisnet.core.cells import Cell, make_cell
from trellisnet.core.checks import boolean, layer_count, positive_int, unknown_option
from trellisnet.core.engine import run
from trellisnet.core.explain import Explanation, explain
from trellisnet.core.forms import Form, PlannedCalls, counted, read_form
from trellisnet.core.kernel import DenseKernel, Drop, Kernel, MixedGroupKernel, Weights
from trellisnet.core.options import PATHS, TrellisOptions, declared_by
from trellisnet.core.precision import floating_dtype, without_autocast
from trellisnet.core.state import AnyState, StateForm, TrellisState, as_state
from trellisnet.core.taps import Reader

if TYPE_CHECKING:
    from trellisnet.core.attention import AttentionTrellis

N = TypeVar("N", bound="TrellisNet")
_Given = tuple[Weights, Tensor, TrellisState | None, Tensor | None]  # what a call computes with, x among it
_Start = tuple[Tensor | None, Tensor | None]  # hidden state and memory of level 0


@dataclass(eq=False, repr=False)
class _Arguments(TrellisOptions):
    batch_first: bool = False
    device: torch.device | str | None = None
    dtype: torch.dtype | None = None


class TrellisNet(TrellisOptions, nn.Module):
    """A trellis network: a causal convolution in time whose weights are tied across layers and whose input enters
    every layer (Bai, Kolter, Koltun, ICLR 2019).

    Args:
        input_size: channels of the input.
        options: those of `TrellisOptions`; the net has each of them as an attribute.
        batch_first: sequences are (B, T, C) instead of (T, B, C), as in `nn.LSTM`.
        device, dtype: of the weights; default torch's.

    >>> net = TrellisNet(3, 16, num_layers=8)
    >>> y, state = net(torch.randn(20, 4, 3))  # (T, B, C), as nn.LSTM
    >>> tuple(y.shape)
    (20, 4, 16)
    >>> y, state = net(torch.randn(1, 4, 3), state)  # continues where it stopped
    >>> last, _ = net(torch.randn(20, 4, 3), tail=1)  # only the last step, and only the cells it needs
    """

    Options: ClassVar[type[TrellisOptions]] = TrellisOptions
    paths: ClassVar[tuple[str, ...]] = PATHS  # those that the net can be run by
    cones: ClassVar[bool] = True  # whether `tail` computes only the cells that it needs
    _reader: Reader | None = None  # of nets that do not read as the paper does
    output_size: int  # as the checks of `TrellisOptions` leave them
    cell: Cell
    dilation: tuple[int, ...]

    @declared_by(_Arguments)
    def __init__(
        self,
        input_size: int,
        *args: Any,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        nn.Module.__init__(self)
        self.input_size = positive_int("input_size", input_size)
        known = [field.name for field in fields(self.Options)]
        for option in options:
            if option not in known:
                raise TypeError(f"{option} is not an option of {type(self).__name__}{unknown_option(option, known)}")
        self.Options.__init__(self, *args, **options)
        self.batch_first = boolean("batch_first", batch_first)
        self.cell = make_cell(self.cell)
        self._build(device=device, dtype=floating_dtype("dtype", dtype))
        self._calls = PlannedCalls()
        read_form(self)  # checks that path, cell and tolerance fit together
        self.reset_parameters()

    def _build(self, **where: Any) -> None:
        kind = DenseKernel if self.groups is None else MixedGroupKernel
        self.kernel: Kernel = kind(self.input_size, self.cell, self, **where)
        sizes = (self.input_size, self.hidden_size, self.cell.has_memory)
        self.state_form = StateForm(*sizes, self.kernel_size, self.dilation, self.kernel.input_taps)

    @property
    def options(self) -> TrellisOptions:
        """The options as they are now: attributes of a net can be changed."""
        return self.Options(**{field.name: getattr(self, field.name) for field in fields(self.Options)})

    def reset_parameters(self) -> None:
        """Draw the weights again, as `init` says."""
        self.kernel.reset_parameters(self.init, self.hidden_size)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}, output_size={self.output_size}"

    @property
    def receptive_field(self) -> int | None:
        """The number of input steps an output can depend on, its own step included; None: all steps before it.

        Sweeps and steps carry a memory along time, so that they see the whole past.
        """
        return self.receptive_field_at(None)

    def receptive_field_at(self, depth: int | None, path: str | None = None) -> int | None:
        """The receptive field of a call of this depth and path; default those of the net."""
        spans = self.state_form.spans(self.num_layers if depth is None else layer_count("depth", depth))
        if (path or self.path) != "layers":
            return None
        if self.hidden_taps == 0:  # only memories connect the layers, one dilation each
            last, passed = len(spans) - 1, self.state_form.dilations(len(spans))
            entered = [i for i in range(0, last + 1, self.inject_every) if i == last or self.cell.has_memory]
            return 1 + max((spans[i] + sum(passed[i + 1 :]) for i in entered), default=0)
        if self.groups is None or self.state_form.window > 1:
            return 1 + sum(spans)
        # the input enters group 1 at the newest tap only, and a layer that crosses to the next group looks no further
        # back; the first group of the output decides how many such layers there are
        crossings = sum(b.channels.stop <= self.hidden_size - self.output_size for b in self.kernel.blocks)
        return 1 + sum(sorted(spans[1:])[min(crossings, len(spans) - 1) :])

    def explain(
        self,
        steps: int,
        batch_size: int = 1,
        *,
        tail: int | None = None,
        depth: int | None = None,
        path: str | None = None,
    ) -> Explanation:
        """What a call on sequences of n steps costs: receptive field, cells, multiply-adds, memory, one streamed step.

        Nothing is computed but the plan of the call. An LSTM and a TCN with as many parameters stand beside it.

        >>> print(TrellisNet(1, 32, num_layers=8, dilation=[1, 2, 4, 8]).explain(784, tail=1).trellis.cells)
        113
        """
        if not self.cones:
            raise ValueError(f"explain does not know attention, got {type(self).__name__}")
        return explain(self, steps, batch_size, tail, depth, path)

    @property
    def nested_depths(self) -> bool:
        """Whether the level above layer n is the output at depth n: no layer depends on those above it."""
        return self.path != "steps" and self.tolerance is None

    @property
    def input_scale(self) -> float | None:
        """The bound of a uniform embedding times sqrt(embedding_size) that suits `init`; None: it has no preference.

        Gated cells of small inputs hardly react to them at first: see docs/initialisation.md.
        """
        return 6.0 if self.init == "uniform" and self.cell.gates > 1 else None

    def weights(self, dtype: torch.dtype | None = None) -> Weights:
        """The weights of one pass: with weight norm applied, and DropConnect in training."""
        drop = Drop(self.weight_dropout, self.drop_all_taps) if self.training else None
        return self.kernel.materialise(dtype or self.kernel.dtype, drop)

    def for_inference(self) -> TrellisNet:
        """An equal net for many calls on the same weights: weight norm, which every call computes, is computed once.

        A copy in evaluation mode if a dense kernel has weight norm, else the net itself.
        """
        return self.densify().eval() if self.kernel.weight_norm and self.groups is None else self

    def densify(self: N) -> N:
        """An equal net with a dense kernel, in which training can continue without the constraint of the groups."""
        return self._densify(type(self))

    def _densify(self, kind: type[N]) -> N:
        inputs, hidden, bias = self.kernel.dense(self.kernel.materialise(self.kernel.dtype))
        cell = copy.deepcopy(self.cell)  # may have parameters
        options = replace(self.options, cell=cell, groups=None, weight_norm=False)
        # on `meta` no random numbers are drawn for weights that are not kept
        where: dict[str, Any] = {"batch_first": self.batch_first, "device": "meta", "dtype": inputs.dtype}
        net = kind(self.input_size, **vars(options), **where)
        net.kernel.to_empty(device=inputs.device)
        net.kernel.set_weight("weight_input", inputs)
        net.kernel.set_weight("weight_hidden", hidden[: len(net.kernel.get_parameter("weight_hidden"))])
        if bias is not None:
            net.kernel.set_weight("bias", bias)
        return net.train(self.training)

    def attend(self, window: int | None = None, heads: int = 2) -> AttentionTrellis:
        """An equal net with attention, in which training can continue.

        Its tap at lag d reads z_{t-d} + gamma attention(z_{t-window+1} .. z_t), and gamma is zero. The weights are
        copies.

        Args:
            window: number of steps that attention sees, the present one included; default 64, or those that the taps
                read if these are more.
            heads: number of attention heads; `hidden_size` must be a multiple of it.

        Raises:
            ValueError: the window is shorter than what the taps read, the heads do not divide the width, the kernel has
                no tap before the newest one for hidden states, or the path is "steps".
        """
        from trellisnet.core.attention import AttentionTrellis  # noqa: PLC0415 (it derives from this class)

        return AttentionTrellis.of(self, window, heads)

    def forward(
        self,
        x: Tensor | PackedSequence,
        state: AnyState | None = None,
        *,
        lengths: Sequence[int] | Tensor | None = None,
        tail: int | None = None,
        depth: int | str | None = None,
        aux: bool = False,
        path: str | None = None,
        tolerance: float | None = None,
        max_depth: int | None = None,
    ) -> tuple[Any, ...]:
        """Run sequences through the net.

        Args:
            x: (T, B, C), (B, T, C) with `batch_first`, (T, C), or a `PackedSequence`.
            state: what an earlier call returned, to continue from there; or a pair (h, c), each (B, H), from which
                every layer starts.
            lengths: where the sequences end; outputs beyond are zero.
            tail: only the last n steps of each sequence, and only the cells they need.
            depth: number of layers; default `num_layers`. "converged": until a layer changes no hidden state by more
                than `tolerance`; `state.iterations` then has the number of layers, with the path "steps" one per step.
            aux: also return the outputs of every `aux_every`-th layer.
            path: "layers", "sweeps" or "steps"; default the net's own. The weights fit all of them.
            tolerance: for `depth="converged"`; default that of the net, or 1e-4.
            max_depth: for `depth="converged"`, the most layers; default 200.

        Returns:
            The output in the form of `x`; with `tail` always a tensor. The state at each sequence's end; with `tail`
            None, because the cells it would need are not computed. With `aux`, the outputs of those layers,
            stacked along a new first dimension.
        """
        sequences, before = read_sequences(x, lengths, self.batch_first, self.input_size), as_state(state)
        form = read_form(self, depth, path, tolerance, max_depth, aux)
        if before is not None and form.one_level:
            before = before.deepest()
        # the last layers of an iteration have gradients, and run in any case: the function is the same without them
        phantom = min(self.phantom_layers, form.depth)
        last = replace(form, depth=phantom, starts=True) if form.solves else form
        call = self._calls.planned(self, sequences, before, tail, last)
        after, padding = None, sequences.padding()
        with without_autocast(call.device.type):
            inputs = sequences.x.to(call.dtype)
            if padding is not None:
                inputs = inputs.masked_fill(padding, 0)  # values there must not reach the weights' gradients
            if before is not None and before.h.dtype != call.dtype:
                before = before.to(call.dtype)
            given: _Given = (self.weights(call.dtype), inputs, before, self._mask(inputs))
            start, count = self._solve(sequences, before, form, given) if form.solves else ((None, None), 0)
            (y, aux_y, h, c), iterations = run(call, *given, start, self._reader)
            iterations = () if form.tolerance is None else counted(iterations or (count + phantom,))
            if h is not None and tail is None:
                spans = (len(h),) if form.one_level else call.plan.spans
                after = self.state_form.after(spans, inputs, before, sequences.lengths, h, c)
                after = replace(after, iterations=iterations)

        def finish(output: Tensor) -> Tensor:  # (T, B, C)
            output = output.to(call.result_dtype)
            if call.picked is not None:
                return output[call.picked]
            return output if padding is None or tail is not None else output.masked_fill(padding, 0)

        outputs = [finish(y)]
        if aux:
            levels = [] if aux_y is None else [finish(level) for level in aux_y]
            outputs.append(torch.stack(levels) if levels else outputs[0].new_empty(0, *outputs[0].shape))
        results = [sequences.restore(output, whole=tail is None) for output in outputs]
        return results[0], after, *results[1:]

    def _solve(self, sequences: Sequences, state: TrellisState | None, form: Form, given: _Given) -> tuple[_Start, int]:
        """Iterate all but the last layers of a call; return the last level at all steps, and the number of layers."""
        most = form.depth - min(self.phantom_layers, form.depth)
        if not most:
            return (None, None), 0
        one_layer = replace(form, depth=1, starts=True, repeats=most)
        call = self._calls.planned(self, sequences, state, None, one_layer)
        (_, _, h, c), (count,) = run(call, *given, reader=self._reader)
        return (h, c), count

    def _mask(self, x: Tensor) -> Tensor | None:
        if not (self.training and self.hidden_dropout):
            return None
        kept = 1 - self.hidden_dropout
        return x.new_empty(x.shape[1], self.hidden_size).bernoulli_(kept).div_(kept)
