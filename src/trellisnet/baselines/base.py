"""What all baselines share: sizes, options declared once, a linear map to another output size, ragged batches."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trellisnet.core.checks import layer_count, positive_int


@dataclass(eq=False, repr=False)
class BaselineOptions:
    """The sizes that every baseline has.

    Args:
        hidden_size: channels of every layer.
        num_layers: number of stacked layers.
        output_size: channels of a linear map of the last layer; default no map, and `hidden_size` channels.
    """

    hidden_size: int
    num_layers: int = 1
    output_size: int | None = None

    def __post_init__(self) -> None:
        self.hidden_size = positive_int("hidden_size", self.hidden_size)
        self.num_layers = layer_count("num_layers", self.num_layers)
        given = self.hidden_size if self.output_size is None else self.output_size
        self.output_size = positive_int("output_size", given)


class Baseline(nn.Module):
    """The base of a baseline body. A subclass also derives from the dataclass of its options.

    The options become attributes of the body. `build` makes the layers; `forward` ends with `self.project(y)`.
    """

    input_size: int
    hidden_size: int
    output_size: int
    receptive_field: int | None = None

    def __init_subclass__(cls) -> None:
        """Give the class the signature of its options, for editors and `inspect.signature`."""
        super().__init_subclass__()
        own = inspect.signature(Baseline.__init__).parameters
        declared = inspect.signature(_options_of(cls)).parameters.values()
        parameters = [own["input_size"], *declared, own["device"], own["dtype"]]
        cls.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]

    def __init__(self, input_size: int, *args: Any, device: Any = None, dtype: Any = None, **options: Any) -> None:
        nn.Module.__init__(self)
        self.input_size = positive_int("input_size", input_size)
        _options_of(type(self)).__init__(self, *args, **options)
        where = {"device": device, "dtype": dtype}
        self.build(where)
        self.down: nn.Linear | None = None
        if self.output_size != self.features:
            self.down = nn.Linear(self.features, self.output_size, **where)

    @property
    def features(self) -> int:
        """Channels of the last layer, which `project` reads."""
        return self.hidden_size

    def build(self, where: dict[str, Any]) -> None:
        """Make the layers; `where` has the arguments `device` and `dtype` of torch's modules."""
        raise TypeError(f"{type(self).__name__} does not define build(where)")

    def project(self, y: Tensor, lengths: Sequence[int] | Tensor | None = None) -> Tensor:
        """Map the last layer's y (T, B, H) to the output size, and set steps beyond each sequence's end to zero."""
        return without_padding(y if self.down is None else self.down(y), lengths)


def _options_of(kind: type[Any]) -> Any:
    """The dataclass that declares the options of a baseline."""
    return next(base for base in kind.__mro__ if "__dataclass_fields__" in vars(base))


def beyond(lengths: Sequence[int] | Tensor, x: Tensor) -> Tensor:
    """True at the steps of x (T, B, ...) beyond each sequence's end: (T, B, 1)."""
    ends = torch.as_tensor(lengths, device=x.device)
    return (torch.arange(len(x), device=x.device)[:, None] >= ends).unsqueeze(-1)


def without_padding(x: Tensor, lengths: Sequence[int] | Tensor | None) -> Tensor:
    """Set the steps of x (T, B, C) beyond each sequence's end to zero.

    What is there may be anything, also not a number, whose gradient of zero times NaN would reach the parameters.
    """
    return x if lengths is None else x.masked_fill(beyond(lengths, x), 0)


def last_steps(rows: Tensor, count: int, lengths: Sequence[int] | Tensor | None) -> Tensor:
    """The last n rows before the end of each sequence.

    `rows` (n + T, B, C) are the n steps before a call, zeros at the start of a sequence, and the T steps of the call.
    They are the left context of a causal convolution in the next call.
    """
    if lengths is None:
        return rows[len(rows) - count :]
    ends = torch.as_tensor(lengths, device=rows.device)
    steps = ends + torch.arange(count, device=rows.device)[:, None]  # (n, B)
    return rows.gather(0, steps.unsqueeze(-1).expand(-1, -1, rows.shape[-1]))


def state_at_ends(states: Tensor, lengths: Sequence[int] | Tensor | None) -> Tensor:
    """The last of the states (T, B, H) after each step of a call, at each sequence's own end: (B, H)."""
    if lengths is None:
        return states[-1]
    ends = torch.as_tensor(lengths, device=states.device) - 1
    return states[ends, torch.arange(len(ends), device=states.device)]
