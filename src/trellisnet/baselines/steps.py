"""What the baselines that loop over steps share: the loop, a stack of layers, dropout with one mask per sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from trellisnet.baselines.base import Baseline, BaselineOptions, beyond, without_padding
from trellisnet.core.checks import probability

States = tuple[Tensor, ...]  # of one layer, each (B, H), or (rows, B, H)
Step = Callable[[Tensor, States], tuple[Tensor, States]]


def run_steps(
    step: Step, inputs: Tensor, states: States, lengths: Sequence[int] | Tensor | None = None
) -> tuple[Tensor, States]:
    """Call `y, states = step(inputs[t], states)` for every step; return all y (T, B, H) and the last states.

    With `lengths`, the returned states are those at each sequence's own end.
    """
    shortest = len(inputs) if lengths is None else int(min(lengths))
    over = None if lengths is None else beyond(lengths, inputs)  # (T, B, 1)
    outputs = []
    for t, row in enumerate(inputs.unbind()):
        y, after = step(row, states)
        if over is not None and t >= shortest:
            after = tuple(torch.where(over[t], old, new) for old, new in zip(states, after, strict=True))
        states = after
        outputs.append(y)
    return torch.stack(outputs), states


def sequence_mask(x: Tensor, size: int, dropped: float) -> Tensor | None:
    """Draw a mask (B, size) of variational dropout for x (T, B, ...), scaled to keep the mean; None: drop nothing."""
    if not dropped:
        return None
    kept = 1 - dropped
    return x.new_empty(x.shape[1], size).bernoulli_(kept).div_(kept)


def masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """Multiply `x` by a mask; None: return `x`."""
    return x if mask is None else x * mask


@dataclass(eq=False, repr=False)
class StackOptions(BaselineOptions):
    """The options of a stack of layers.

    Args:
        dropout: between the layers, one mask per sequence.
    """

    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.dropout = probability("dropout", self.dropout)
        if self.dropout and self.num_layers == 1:
            raise ValueError(f"dropout acts between layers: got dropout={self.dropout} with num_layers=1")


@dataclass(eq=False, repr=False)
class HiddenDropoutOptions(StackOptions):
    """The options of a stack of layers with variational dropout (Gal, Ghahramani, 2016) of their hidden states.

    Args:
        hidden_dropout: of the hidden state where the next step reads it, one mask per sequence and layer.
    """

    hidden_dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hidden_dropout = probability("hidden_dropout", self.hidden_dropout)


class RecurrentLayer(nn.Module):
    """One layer: its states at the start, what its steps read of x, and a step."""

    def start(self, x: Tensor) -> States:
        """Return the states before the first step of sequences x (T, B, C)."""
        raise TypeError(f"{type(self).__name__} does not define start(x)")

    def begin(self, x: Tensor) -> tuple[Tensor, Step]:
        """Return what the steps read (T, B, ...), with all products of x alone, and the function of a step.

        Masks of this call are drawn here.
        """
        raise TypeError(f"{type(self).__name__} does not define begin(x)")

    def end(self, y: Tensor, lengths: Sequence[int] | Tensor | None) -> Tensor:
        """Map the outputs (T, B, H) of all steps to those of the layer."""
        return y


class RecurrentBody(Baseline, BaselineOptions):
    """A body whose layers loop over the steps. A subclass makes them with `stack`.

    Its state is a tuple of tensors. Each has the rows of the first layer, then those of the second, ... in dimension 0,
    and the batch in dimension 1: (layers, B, H) for a layer with one hidden state.
    """

    output_size: int  # never None after the checks of `BaselineOptions`
    dropout: float

    def stack(self, make: Callable[[int], RecurrentLayer]) -> None:
        """Make the layers, each from its number of input channels."""
        sizes = [self.input_size, *[self.features] * (self.num_layers - 1)]
        self.layers = nn.ModuleList(make(size) for size in sizes)

    def forward(
        self, x: Tensor, state: States | None = None, *, lengths: Sequence[int] | Tensor | None = None
    ) -> tuple[Tensor, States]:
        """Run x (T, B, C) from a state; return outputs (T, B, O) and the new state.

        With `lengths`, the state is the one at each sequence's own end, and outputs beyond it are zero.
        """
        x = without_padding(x, lengths)
        ends = []
        for index, module in enumerate(self.layers):
            layer = cast("RecurrentLayer", module)
            if index and self.training:
                x = masked(x, sequence_mask(x, x.shape[-1], self.dropout))
            states = layer.start(x)
            if state is not None:
                given = (tensor.chunk(len(self.layers))[index] for tensor in state)
                states = tuple(rows.reshape(own.shape) for rows, own in zip(given, states, strict=True))
            inputs, step = layer.begin(x)
            y, states = run_steps(step, inputs, states, lengths)
            x = layer.end(y, lengths)
            ends.append(states)
        after = (torch.cat([rows.view(-1, *rows.shape[-2:]) for rows in kind]) for kind in zip(*ends, strict=True))
        return self.project(x, lengths), tuple(after)
