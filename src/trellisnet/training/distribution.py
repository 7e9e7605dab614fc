"""One process or several started by torchrun, and the communication between them."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from trellisnet.models.heads.adaptive import AdaptiveHead
from trellisnet.models.pretrained import Pretrained
from trellisnet.training.sharding import Sharded
from trellisnet.training.signals import Interrupted


@dataclass(frozen=True)
class Workers:
    """The processes of a run, from the point of view of one of them.

    All methods are collective: every process must call them.
    """

    rank: int = 0
    count: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def sum(self, values: dict[str, float]) -> dict[str, float]:
        """The sum of each value over all processes, in double precision if the device supports it."""
        if self.count == 1:
            return values
        dtype = torch.float32 if self.device.type == "mps" else torch.float64
        totals = torch.tensor(list(values.values()), dtype=dtype, device=self.device)
        dist.all_reduce(totals)
        return dict(zip(values, totals.tolist(), strict=True))

    def mean(self, values: Mapping[str, Tensor]) -> dict[str, float]:
        """The mean of each scalar over all processes."""
        numbers = torch.stack([value.float() for value in values.values()]).tolist()  # one transfer from the device
        sums = self.sum(dict(zip(values, numbers, strict=True)))
        return {name: value / self.count for name, value in sums.items()}

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in the first process; an empty list in the others."""
        if self.count == 1:
            return [value]
        values: list[Any] | None = [None] * self.count if self.first else None
        dist.gather_object(value, values)
        return values or []

    def broadcast(self, value: Any) -> Any:
        """The first process's value, in all processes."""
        values = [value]
        if self.count > 1:
            dist.broadcast_object_list(values)
        return values[0]

    def agree(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return self.sum({"flag": float(flag)})["flag"] > 0

    def wait(self) -> None:
        """Block until all processes arrive here."""
        if self.count > 1:
            dist.barrier()


@contextmanager
def workers(device: str, group: bool = False) -> Iterator[Workers]:
    """Join the process group if torchrun started several processes; leave it at the end.

    Args:
        device: the name of a device, for `choose_device`.
        group: whether a single process makes a group too, because the model is sharded.
    """
    if group and not dist.is_available():
        raise ValueError("training.shard needs torch.distributed, which this build of torch does not have")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = choose_device(device, local)
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if not several and (not group or dist.is_initialized()):
        yield Workers(device=chosen)
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    _join(several, "nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Workers(dist.get_rank(), dist.get_world_size(), chosen)
    finally:
        # A DDP model refers to itself, so it outlives its training and holds the group and its threads. A thread that
        # is still alive when the interpreter exits aborts the process.
        gc.collect()
        dist.destroy_process_group()


def _join(several: bool, backend: str) -> None:
    """Join the group of the processes that torchrun started, or make one of this process."""
    c10d: Any = dist  # torch declares fewer names than it documents
    if not several:
        dist.init_process_group(backend, store=c10d.HashStore(), rank=0, world_size=1)
        return
    store, rank, count = next(c10d.rendezvous("env://"))
    # torchrun may keep its store when it starts processes again, with the addresses of those that have died
    start = f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')} of {count}"
    dist.init_process_group(backend, store=c10d.PrefixStore(start, store), rank=rank, world_size=count)


class LostProcess(Interrupted):
    """Another process of the run has ended, so that this one cannot go on; the run can be resumed."""


def is_lost(error: RuntimeError) -> bool:
    """Whether an error says that the connection to another process is gone."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)


def parallel(model: nn.Module, team: Workers, sharded: bool = False) -> nn.Module:
    """Wrap a model so that all processes train it together; `sharded`: each of them keeps a part of it."""
    # of an adaptive softmax, clusters without a token in a batch get no gradient; of other models nothing is known
    partly = isinstance(getattr(model, "head", None), AdaptiveHead) or not isinstance(model, Pretrained)
    if sharded:
        return Sharded(model, team.device, partly)
    if team.count == 1:
        return model
    devices = [team.device] if team.device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=devices, find_unused_parameters=partly)


def without_exchange(model: nn.Module) -> AbstractContextManager[None]:
    """A context in which a wrapped model keeps its gradients to itself, because more will be added to them."""
    if isinstance(model, DistributedDataParallel):
        return model.no_sync()
    return model.without_exchange() if isinstance(model, Sharded) else nullcontext()


def choose_device(name: str, local_rank: int = 0, option: str = "training.device") -> torch.device:
    """The device of a name; "auto" selects a GPU if there is one.

    Raises:
        ValueError: if the device cannot be used; the message names `option`.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{option} {name!r} cannot be used: {reason}") from None
    return torch.device("cuda", local_rank) if device.type == "cuda" and device.index is None else device
