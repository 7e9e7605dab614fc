"""One process or many: what torchrun started, and the few things processes must say to each other."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trellisnet.models.heads.adaptive import AdaptiveHead
from trellisnet.models.pretrained import Pretrained


@dataclass(frozen=True)
class Workers:
    """The processes of a run, seen from one of them."""

    rank: int = 0
    count: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        """Whether this is the one that writes."""
        return self.rank == 0

    def sum(self, values: dict[str, float]) -> dict[str, float]:
        """Each value, summed over all processes, in double precision where the device has it."""
        if self.count == 1:
            return values
        dtype = torch.float32 if self.device.type == "mps" else torch.float64
        totals = torch.tensor(list(values.values()), dtype=dtype, device=self.device)
        dist.all_reduce(totals)
        return dict(zip(values, totals.tolist(), strict=True))

    def gather(self, value: Any) -> list[Any]:
        """The value of every process, on the first; the others get an empty list."""
        if self.count == 1:
            return [value]
        values: list[Any] | None = [None] * self.count if self.first else None
        dist.gather_object(value, values)
        return values or []

    def broadcast(self, value: Any) -> Any:
        """The first process's value, for all."""
        values = [value]
        if self.count > 1:
            dist.broadcast_object_list(values)
        return values[0]

    def agree(self, flag: bool) -> bool:
        """Whether any of the processes says yes."""
        return self.sum({"flag": float(flag)})["flag"] > 0

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            dist.barrier()


@contextmanager
def workers(device: str) -> Iterator[Workers]:
    """Join the other processes, if torchrun started any, and leave them at the end."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = choose_device(device, local)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Workers(device=chosen)
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Workers(dist.get_rank(), dist.get_world_size(), chosen)
    finally:
        # a wrapped model refers to itself, so it outlives its training, and holds the group and its threads; a thread
        # that is still alive when the interpreter ends aborts the process
        gc.collect()
        dist.destroy_process_group()


def parallel(model: nn.Module, team: Workers) -> nn.Module:
    """Wrap a model so that all processes train it together."""
    if team.count == 1:
        return model
    devices = [team.device] if team.device.type == "cuda" else None
    # of an adaptive softmax, clusters without a token in a batch get no gradient; of other models nothing is known
    partly = isinstance(getattr(model, "head", None), AdaptiveHead) or not isinstance(model, Pretrained)
    return DistributedDataParallel(model, device_ids=devices, find_unused_parameters=partly)


def choose_device(name: str, local_rank: int = 0, option: str = "training.device") -> torch.device:
    """The device of a name; "auto": a GPU if there is one. Errors call it `option`."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{option} {name!r} cannot be used: {reason}") from None
    return torch.device("cuda", local_rank) if device.type == "cuda" and device.index is None else device
