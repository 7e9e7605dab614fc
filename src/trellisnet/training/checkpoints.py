"""Checkpoints: the complete state of a run, in safetensors and JSON. A run resumed from one continues exactly.

A checkpoint is `step-N.safetensors` with the tensors and `step-N.json` with the rest and a checksum of both. The JSON
file is renamed last: it exists only if the checkpoint is complete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from trellisnet.files import replacing

KEPT = 2
FORMAT = 4  # of the content; training resumes only from this one


class DamagedError(ValueError):
    """The content of a checkpoint differs from what was written."""


def save_checkpoint(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Write a checkpoint, and remove all but the last `KEPT`."""
    tensors: dict[str, Tensor] = {}
    rest = json.dumps(_flatten(state, "", tensors), sort_keys=True)
    data = save(tensors)
    names = folder / f"step-{step}.safetensors", folder / f"step-{step}.json"
    with replacing(*names) as (tensor_file, rest_file):
        tensor_file.write_bytes(data)
        content = {"format": FORMAT, "sha256": _checksum(data, rest), "state": json.loads(rest)}
        rest_file.write_text(json.dumps(content), encoding="utf-8")
    for old in saved_steps(folder)[:-KEPT]:
        for suffix in (".json", ".safetensors"):  # in this order: without its JSON file a checkpoint is ignored
            (folder / f"step-{old}{suffix}").unlink(missing_ok=True)


def saved_steps(folder: Path) -> list[int]:
    """The steps that have checkpoints, in ascending order."""
    names = [path.stem.removeprefix("step-") for path in folder.glob("step-*.json")]
    return sorted(int(name) for name in names if name.isdigit())


def load_checkpoint(folder: Path, step: int) -> dict[str, Any]:
    """Read a checkpoint.

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
        state: dict[str, Any] = _unflatten(content["state"], load(data)) if is_whole and form == FORMAT else {}
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


def load_latest(folder: Path, warn: Callable[[str], None]) -> dict[str, Any] | None:
    """The last intact checkpoint; None if there is no checkpoint, a `DamagedError` if all are damaged."""
    steps = saved_steps(folder)
    for step in reversed(steps):
        try:
            return load_checkpoint(folder, step)
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


def _flatten(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Replace tensors in nested values by their names, and add them to `tensors`."""
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        # keys of an optimiser's state are numbers, which JSON would turn into strings
        return {"items": [[key, _flatten(each, f"{name}/{key}", tensors)] for key, each in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"list": [_flatten(each, f"{name}/{i}", tensors) for i, each in enumerate(value)]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    raise TypeError(f"a checkpoint cannot hold {name}: {type(value).__name__}")


def _unflatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "items" in value:
        return {key: _unflatten(each, tensors) for key, each in value["items"]}
    if "list" in value:
        return [_unflatten(each, tensors) for each in value["list"]]
    return value["value"]
