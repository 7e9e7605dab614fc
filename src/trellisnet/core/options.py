"""The options of a trellis network, declared once: the net, the models, the recipes and `--help` read them here.

Imports nothing heavy, so that `--help` is quick.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from trellisnet.core.checks import boolean, layer_count, non_negative, one_of, positive_int, positive_ints, probability

if TYPE_CHECKING:
    from trellisnet.core.cells import Cell

P = ParamSpec("P")
PATHS = ("layers", "sweeps", "steps")  # ways through the grid: see `naive.py`


@dataclass(eq=False, repr=False)
class TrellisOptions:
    """All choices of a trellis network but the size of its input, which the data decides.

    Args:
        hidden_size: channels of every layer. The paper's tables count without the output channels; this does not.
        num_layers: depth of a call that does not choose its own. The weights do not depend on it.
        output_size: the output is the last n channels; default all.
        cell: "tanh", "relu", "lstm", "coupled", "gru"; "highway" or "nas", which are slower, because they run with
            ordinary operations; the path of a YAML file with expressions; or in Python a `Cell` of your own.
        kernel_size: taps of the convolution, at least 2.
        hidden_taps: the hidden state enters through the oldest n taps only; default all. With sweeps and two taps, one
            is enough: that of the step before.
        dilation: steps between taps: a number, or a cycle of numbers over the layers.
        bias: whether the kernel has a bias.
        weight_norm: learn direction and length of each gate's weights separately.
        hidden_dropout: variational: one mask per sequence and call, the same at every step of every layer.
        weight_dropout: DropConnect on the kernels, one mask per call.
        drop_all_taps: let DropConnect act on all taps, not only on the older ones as in the paper's experiments.
        inject_every: the input enters every n-th layer, beginning with the first.
        aux_every: `aux=True` gives the output of every n-th layer, for auxiliary losses.
        groups: sizes of channel groups for a mixed-group kernel instead of a dense one: group l reads its own past and
            the present of group l-1, and is zero in the first l-1 layers, as in the proof of theorem 1.
        staggered: sizes of channel groups of which group l is zero in the first l-1 layers; follows from `groups`.
            With a dense kernel, it is what `densify` leaves of them.
        memory: "store" what the backward pass needs, or "recompute" it from h and c of a few layers.
        init: "uniform", which trains best from scratch, or "paper", the authors' N(0, 0.01).
        path: the way through the grid of layers and steps. "layers" is the paper's. "sweeps": the memory runs along
            time within a layer, so that it reaches back without limit; a few layers are enough. "steps": one step
            after the other, each from the final state of the step before, like an RNN.
        tolerance: stop before `num_layers` when a layer changes no hidden state by more than this; default never.
        phantom_layers: with `tolerance` or `depth="converged"`, the gradient flows through the last n layers only.
    """

    hidden_size: int
    num_layers: int
    output_size: int | None = None
    cell: str | Cell = "lstm"
    kernel_size: int = 2
    hidden_taps: int | None = None
    dilation: int | Sequence[int] = 1
    bias: bool = True
    weight_norm: bool = False
    hidden_dropout: float = 0.0
    weight_dropout: float = 0.0
    drop_all_taps: bool = False
    inject_every: int = 1
    aux_every: int | None = None
    groups: Sequence[int] | None = None
    staggered: Sequence[int] | None = None
    memory: str = "store"
    init: str = "uniform"
    path: str = "layers"
    tolerance: float | None = None
    phantom_layers: int = 4

    def __post_init__(self) -> None:
        """Check every option, and convert numbers and sequences to ints and tuples."""
        self.hidden_size = positive_int("hidden_size", self.hidden_size)
        self.num_layers = layer_count("num_layers", self.num_layers)
        if self.output_size is None:
            self.output_size = self.hidden_size
        self.output_size = positive_int("output_size", self.output_size)
        if self.output_size > self.hidden_size:
            raise ValueError(f"output_size must be at most hidden_size = {self.hidden_size}, got {self.output_size}")
        self.kernel_size = positive_int("kernel_size", self.kernel_size, minimum=2)
        self.dilation = positive_ints("dilation", self.dilation)
        self.hidden_dropout = probability("hidden_dropout", self.hidden_dropout)
        self.weight_dropout = probability("weight_dropout", self.weight_dropout)
        self.inject_every = positive_int("inject_every", self.inject_every)
        self.aux_every = None if self.aux_every is None else positive_int("aux_every", self.aux_every)
        self.memory = one_of("memory", self.memory, ("store", "recompute"))
        self.init = one_of("init", self.init, ("uniform", "paper"))
        self.path = one_of("path", self.path, PATHS)
        self.tolerance = None if self.tolerance is None else non_negative("tolerance", self.tolerance)
        self.phantom_layers = positive_int("phantom_layers", self.phantom_layers)
        for name in ("bias", "weight_norm", "drop_all_taps"):
            setattr(self, name, boolean(name, getattr(self, name)))
        self._check_groups()
        if self.hidden_taps is not None:
            self.hidden_taps = positive_int("hidden_taps", self.hidden_taps, minimum=0)
            if self.hidden_taps > self.kernel_size:
                most = f"at most kernel_size = {self.kernel_size}"
                raise ValueError(f"hidden_taps must be {most}, got {self.hidden_taps}")
            if self.groups is not None:
                raise ValueError(f"hidden_taps must be None with groups, got {self.hidden_taps}")

    def _check_groups(self) -> None:
        for name in ("groups", "staggered"):
            if (given := getattr(self, name)) is None:
                continue
            sizes = positive_ints(name, given)
            if sum(sizes) != self.hidden_size:
                total = f"hidden_size = {self.hidden_size}"
                raise ValueError(f"{name} must add up to {total}, got {sizes}, sum {sum(sizes)}")
            setattr(self, name, sizes)
        if self.staggered is None:
            self.staggered = self.groups
        if self.groups is not None and self.staggered != self.groups:
            raise ValueError(f"staggered follows from groups: expected {self.groups} or None, got {self.staggered}")
        if self.staggered is not None and self.num_layers < (count := len(self.staggered)):
            reach = f"the last of {count} groups is zero in the layers before its own"
            raise ValueError(f"num_layers must be at least {count}, because {reach}, got {self.num_layers}")


@dataclass(eq=False, repr=False)
class AttentionTrellisOptions(TrellisOptions):
    """The options of a trellis network with attention, beside those of a trellis network.

    Args:
        window: number of steps that attention sees, the present one included; at least those that the taps read, which
            is also the default if they are more than 64; else the default is 64.
        heads: number of attention heads; hidden_size must be a multiple of it.
    """

    window: int | None = None
    heads: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        reach = 1 + (self.kernel_size - 1) * max(positive_ints("dilation", self.dilation))
        self.window = max(64, reach) if self.window is None else positive_int("window", self.window)
        if self.window < reach:
            taps = f"{self.kernel_size} taps with dilation {max(positive_ints('dilation', self.dilation))}"
            raise ValueError(f"window must be at least {reach}, the steps that {taps} read, got {self.window}")
        self.heads = positive_int("heads", self.heads)
        if self.hidden_size % self.heads:
            raise ValueError(f"hidden_size must be a multiple of heads = {self.heads}, got {self.hidden_size}")
        if self.hidden_taps is not None and self.hidden_taps < self.kernel_size - 1:
            raise ValueError(
                f"hidden_taps must be at least kernel_size - 1 = {self.kernel_size - 1}, because attention enters "
                f"through the tap before the newest, got {self.hidden_taps}"
            )


del TrellisOptions.cell  # a default on the class would hide a cell of the user's that is a module of the net


def declared_by(
    arguments: Callable[P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, int, P], None]]:
    """Give an `__init__(self, input_size, *args, **kwargs)` the signature of a dataclass behind its first argument.

    Type checkers, editors and `inspect.signature` then know every option, which is nevertheless written only once.
    """

    def declare(init: Callable[..., None]) -> Callable[Concatenate[Any, int, P], None]:
        first = list(inspect.signature(init).parameters.values())[:2]
        rest = inspect.signature(arguments).parameters.values()
        init.__signature__ = inspect.Signature([*first, *rest], return_annotation=None)  # type: ignore[attr-defined]
        return init

    return declare
