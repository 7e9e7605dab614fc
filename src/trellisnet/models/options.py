"""The options of `TrellisNet` that every model passes on to it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, SupportsFloat, SupportsIndex

from typing_extensions import TypedDict

from trellisnet.core.cells import Cell
from trellisnet.core.checks import non_negative


class NetOptions(TypedDict, total=False):
    """See `TrellisNet`, whose defaults hold."""

    cell: str | Cell
    kernel_size: int
    dilation: int | Sequence[int]
    bias: bool
    weight_norm: bool
    hidden_dropout: float
    weight_dropout: float
    drop_all_taps: bool
    inject_every: int
    aux_every: int | None
    groups: Sequence[int] | None
    staggered: Sequence[int] | None
    memory: str
    init: str


def check_net_options(net: NetOptions) -> None:
    """A TypedDict is not checked when a program runs."""
    for name in net.keys() - NetOptions.__annotations__.keys():
        hint = "; sequences always come as (B, T, ...)" if name == "batch_first" else ""
        raise TypeError(f"{name} is not an option of this model{hint}")


def check_aux_weight(aux_weight: float | None, net: NetOptions) -> float:
    """The weight of the sum of auxiliary losses, which only a net that gives auxiliary outputs can have."""
    if aux_weight is None:
        return 0.05
    if net.get("aux_every") is None:
        raise ValueError(f"aux_weight needs aux_every: got aux_weight={aux_weight} and aux_every=None")
    return non_negative("aux_weight", aux_weight)


def constructor_arguments(values: dict[str, Any]) -> dict[str, Any]:
    """What a constructor was called with, from its `locals()`: for the model's `config`."""
    check_net_options(values["net"])
    skipped = ("self", "__class__", "device", "dtype", "net")
    own = {name: value for name, value in values.items() if name not in skipped}
    return {name: _plain(value) for name, value in {**own, **values["net"]}.items()}


def _plain(value: Any) -> Any:
    """Numbers and sequences of any kind as JSON knows them, so that whatever a model takes can be saved."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, (bool, str, Cell)):
        return value
    if isinstance(value, SupportsIndex):
        return index(value)
    return float(value) if isinstance(value, SupportsFloat) else value
