"""Checkpoints: the complete state of a run, in safetensors and JSON. A run resumed from one continues exactly.

A checkpoint is `step-N.safetensors` with the tensors and `step-N.json` with the rest and a checksum of both. If the
model is sharded, each process writes its parts of the distributed tensors to `step-N.shards`, whose checksums are in
the JSON file too. The JSON file is renamed last: it exists only if the checkpoint is complete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from trellisnet.files import replacing
from trellisnet.training.sharding import hashes, is_shard, read_shards, write_shards

KEPT = 2
SHARDS = ".shards"  # ends the name of a folder
FORMAT = 4  # of the content; training resumes only from this one


class DamagedError(ValueError):
    """The content of a checkpoint differs from what was written."""


def save_checkpoint(folder: Path, step: int, state: dict[str, Any], first: bool = True) -> None:
    """Write a checkpoint, and remove all but the last `KEPT`.

    Args:
        folder: of the checkpoints of a run.
        step: number of training steps so far.
        state: of the run. If there are distributed tensors in it, all processes must call this function.
        first: whether this is the process that writes all the rest.
    """
    tensors: dict[str, Tensor] = {}
    shards: dict[str, Tensor] = {}
    rest = json.dumps(_flatten(state, "", tensors, shards), sort_keys=True)
    written = write_shards(folder / f"step-{step}{SHARDS}", shards, first) if shards else {}
    if not first:
        return
    data = save(tensors)
    names = folder / f"step-{step}.safetensors", folder / f"step-{step}.json"
    with replacing(*names) as (tensor_file, rest_file):
        tensor_file.write_bytes(data)
        content = {"format": FORMAT, "sha256": _checksum(data, rest), "state": json.loads(rest), "shards": written}
        rest_file.write_text(json.dumps(content), encoding="utf-8")
    for old in saved_steps(folder)[:-KEPT]:
        for suffix in (".json", ".safetensors"):  # in this order: without its JSON file a checkpoint is ignored
            (folder / f"step-{old}{suffix}").unlink(missing_ok=True)
    kept = saved_steps(folder)
    for path in folder.glob(f"step-*{SHARDS}"):
        if path.stem not in [f"step-{each}" for each in kept]:
            rmtree(path)


def saved_steps(folder: Path) -> list[int]:
    """The steps that have checkpoints, in ascending order."""
    names = [path.stem.removeprefix("step-") for path in folder.glob("step-*.json")]
    return sorted(int(name) for name in names if name.isdigit())


def load_checkpoint(folder: Path, step: int, mesh: Any = None) -> dict[str, Any]:
    """Read a checkpoint.

    Args:
        folder: of the checkpoints of a run.
        step: number of training steps so far.
        mesh: the processes that share distributed tensors; they all call this function. None: read them whole.

    Raises:
        DamagedError: if a file cannot be read or the checksum differs.
        ValueError: if the checkpoint is intact but has another format.
    """
    path = folder / f"step-{step}.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        data = path.with_suffix(".safetensors").read_bytes()
        rest = json.dumps(content["state"], sort_keys=True)
        is_whole, form = content["sha256"] == _checksum(data, rest), content.get("format", 1)
        shards = path.with_suffix(SHARDS)
        is_whole = is_whole and content.get("shards", {}) == hashes(shards)
        state: dict[str, Any] = {}
        if is_whole and form == FORMAT:
            tensors, kinds = load(data), dict(_kinds(content["state"]))
            tensors |= read_shards(shards, kinds, mesh) if kinds else {}
            state = _unflatten(content["state"], tensors)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"checkpoint {path} is damaged: {error}") from None
    if not is_whole:
        raise DamagedError(f"checkpoint {path} is damaged: its checksum differs")
    if form != FORMAT:
        raise ValueError(
            f"checkpoint {path} has format {form}, and training resumes only from format {FORMAT}; "
            "the run's models can still be used"
        )
    return state


def load_latest(folder: Path, warn: Callable[[str], None], mesh: Any = None) -> dict[str, Any] | None:
    """The last intact checkpoint; None if there is no checkpoint, a `DamagedError` if all are damaged."""
    steps = saved_steps(folder)
    for step in reversed(steps):
        try:
            return load_checkpoint(folder, step, mesh)
        except DamagedError as error:
            warn(f"{error}; using the previous one")
    if steps:
        raise DamagedError(f"all checkpoints in {folder} are damaged")
    return None


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """The states of torch's random number generators."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_generators(states: dict[str, Tensor], device: torch.device) -> None:
    """Restore the states of torch's random number generators."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)


def _checksum(data: bytes, rest: str) -> str:
    return hashlib.sha256(hashlib.sha256(data).digest() + rest.encode()).hexdigest()


def _flatten(value: Any, name: str, tensors: dict[str, Tensor], shards: dict[str, Tensor]) -> Any:
    """Replace tensors in nested values by their names; add them to `tensors`, or `shards` if they are distributed."""
    if isinstance(value, Tensor) and is_shard(value):
        shards[name] = value.detach()
        return {"shards": name, "shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        # keys of an optimiser's state are numbers, which JSON would turn into strings
        return {"items": [[key, _flatten(each, f"{name}/{key}", tensors, shards)] for key, each in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"list": [_flatten(each, f"{name}/{i}", tensors, shards) for i, each in enumerate(value)]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    raise TypeError(f"a checkpoint cannot hold {name}: {type(value).__name__}")


def _kinds(value: Any) -> Iterator[tuple[str, tuple[list[int], str]]]:
    """Name, shape and type of the distributed tensors in flattened values."""
    if "shards" in value:
        yield value["shards"], (value["shape"], value["dtype"])
    for each in [*(inner for _, inner in value.get("items", [])), *value.get("list", [])]:
        yield from _kinds(each)


def _unflatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "shards" in value:
        return tensors[value["shards"]]
    if "items" in value:
        return {key: _unflatten(each, tensors) for key, each in value["items"]}
    if "list" in value:
        return [_unflatten(each, tensors) for each in value["list"]]
    return value["value"]
