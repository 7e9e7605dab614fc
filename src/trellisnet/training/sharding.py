"""Models that are divided among the processes of a run: torch's FSDP2, and its tensors in files.

Each process keeps a part of every parameter, of its gradient, and of the optimiser's state. A training step gathers
the whole parameters and returns to the parts at its end. In files, every process writes its own parts, and another
number of processes can read them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from trellisnet.checksums import file_hash
from trellisnet.files import noticing_full_disk, sync


class Parts(nn.Module):
    """A model of which each process keeps a part; a forward pass is of all processes together.

    The hooks of FSDP are on this module and not on the model, which keeps its class.

    Args:
        model: its parameters become distributed tensors; its result has a `loss`.
        partly: whether a forward pass may leave parameters out. Their gradients are then zero, because all processes
            must exchange the same parameters.
    """

    def __init__(self, model: nn.Module, partly: bool) -> None:
        super().__init__()
        self.model, self.partly = model, partly

    def forward(self, *args: Any, **options: Any) -> tuple[Tensor, Any]:
        """The loss, at which FSDP begins the backward pass, and the whole result, which it may be unable to read."""
        if torch.is_grad_enabled():
            for buffer in self.buffers():  # as without sharding, those of the first process count
                dist.broadcast(buffer, 0)
            for parameter in self.parameters() if self.partly else ():
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
        out = self.model(*args, **options)
        return out.loss, out


class Sharded(nn.Module):
    """A copy of a model that is divided among the processes of the group, to be called like the model itself.

    FSDP leaves hooks in the modules that it divides. So the model is never divided: it is without values while its copy
    is trained, and an ordinary model when it is used or saved.

    Args:
        model: equal in every process; its parameters become NaN in their shape, which needs no memory.
        device: of this process.
        partly: see `Parts`.
    """

    def __init__(self, model: nn.Module, device: torch.device, partly: bool) -> None:
        super().__init__()
        from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415  # slow to import, and rarely needed
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        divided: Any = Parts(deepcopy(model), partly)
        self.parts = fully_shard(divided, mesh=mesh, reshard_after_forward=False)
        self._model = (model,)  # in a tuple, because its parameters are not those of this module
        self.clear()

    def forward(self, *args: Any, **options: Any) -> Any:
        """The model's result."""
        return self.parts(*args, **options)[1]

    @torch.no_grad()
    def fill(self) -> None:
        """Give the model the values of its copy; all processes do so together."""
        (model,), divided = self._model, self.parts.model
        for parameter, part in zip(model.parameters(), divided.parameters(), strict=True):
            parameter.data = full(part)
        for buffer, other in zip(model.buffers(), divided.buffers(), strict=True):
            buffer.copy_(other)

    def clear(self) -> None:
        """Take the values of the model's parameters away, so that nobody uses them by mistake."""
        for parameter in self._model[0].parameters():
            parameter.data = parameter.new_tensor(math.nan).expand(parameter.shape)

    @contextmanager
    def without_exchange(self) -> Iterator[None]:
        """A context in which every process keeps its gradients, because more will be added to them."""
        self.parts.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.parts.set_requires_gradient_sync(True)


@contextmanager
def whole(trained: nn.Module) -> Iterator[None]:
    """Give a model that is trained sharded its values, in every process, until the end of the context."""
    if not isinstance(trained, Sharded):
        yield
        return
    trained.fill()
    try:
        yield
    finally:
        trained.clear()


def is_shard(tensor: Tensor) -> bool:
    """Whether a tensor is distributed."""
    return hasattr(tensor, "device_mesh")


def full(tensor: Any) -> Tensor:
    """The values of a tensor in every process, also if it is distributed."""
    complete: Tensor = tensor.full_tensor() if is_shard(tensor) else tensor
    return complete


def write_shards(folder: Path, shards: Mapping[str, Tensor], first: bool) -> dict[str, str]:
    """Write distributed tensors to a new folder, each process its own parts; return the hashes of the files.

    Args:
        folder: on a disk that all processes share.
        shards: the tensors by name.
        first: whether this is the process that makes the folder and computes the hashes.
    """
    checkpoint = _checkpoint()
    if first:
        rmtree(folder, ignore_errors=True)  # of a run that was killed while it was writing
        with noticing_full_disk(folder):
            folder.mkdir(parents=True)
    dist.barrier()
    # as safetensors: the default format is a pickle
    writer = checkpoint.HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        checkpoint.save(dict(shards), storage_writer=writer)
    except checkpoint.CheckpointException as error:  # of any process, in all of them
        reason = next(iter(error.failures.values()))[0]
        with noticing_full_disk(folder):
            raise reason from None
    if not first:
        return {}
    for path in (*folder.iterdir(), folder):
        sync(path)
    return hashes(folder)


def hashes(folder: Path) -> dict[str, str]:
    """The hash of each file of a folder, by name; empty if there is no such folder."""
    return {path.name: file_hash(path) for path in sorted(folder.glob("*"))}


def read_shards(folder: Path, kinds: Mapping[str, tuple[list[int], str]], mesh: Any) -> dict[str, Tensor]:
    """Read distributed tensors; all processes of the mesh do so together.

    Args:
        folder: that `write_shards` wrote, with the same or another number of processes.
        kinds: shape and type of each tensor by name.
        mesh: the processes; None: read the whole tensors in this one.
    """
    from torch.distributed import tensor as distributed  # noqa: PLC0415

    checkpoint = _checkpoint()
    found: dict[str, Tensor] = {}
    for name, (shape, kind) in kinds.items():
        dtype = getattr(torch, kind)
        if mesh is None:
            found[name] = torch.empty(shape, dtype=dtype)
        else:
            cut = [distributed.Shard(0)]
            found[name] = distributed.empty(*shape, dtype=dtype, device_mesh=mesh, placements=cut)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # which is said if mesh is None
        reader = checkpoint.HuggingFaceStorageReader(str(folder))
        checkpoint.load(found, storage_reader=reader, no_dist=mesh is None)
    return found


def _checkpoint() -> Any:
    """torch.distributed.checkpoint, which is slow to import and declares fewer names than it documents."""
    return import_module("torch.distributed.checkpoint")
