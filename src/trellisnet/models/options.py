"""The options of `TrellisNet` that every model passes on to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


def check_aux_weight(aux_weight: float | None, net: NetOptions) -> float:
    """The weight of the sum of auxiliary losses, which only a net that gives auxiliary outputs can have."""
    if aux_weight is None:
        return 0.05
    if net.get("aux_every") is None:
        raise ValueError(f"aux_weight needs aux_every: got aux_weight={aux_weight} and aux_every=None")
    return non_negative("aux_weight", aux_weight)


def constructor_arguments(values: dict[str, Any]) -> dict[str, Any]:
    """What a constructor was called with, from its `locals()`: for the model's `config`."""
    skipped = ("self", "__class__", "device", "dtype", "net")
    own = {name: value for name, value in values.items() if name not in skipped}
    return {**own, **values["net"]}
