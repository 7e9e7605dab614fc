"""Save and load the weights of a model: one of ours, which also saves its configuration, or a user's module."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn

from trellisnet.checksums import check_intact, forget, record
from trellisnet.files import replacing
from trellisnet.models.pretrained import CONFIG, WEIGHTS, Pretrained
from trellisnet.training.runs import TASK, write_json
from trellisnet.vocabulary import FILE_NAME as VOCABULARY


def save_model(model: nn.Module, folder: Path, facts: Mapping[str, Any]) -> None:
    """Write a model to a folder, which is created if needed. An existing model there is replaced atomically.

    Args:
        model: the model.
        folder: becomes sufficient for predictions, also if it is copied elsewhere.
        facts: of the task, for `task.json`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    forget(folder)
    write_json(folder / TASK, facts)  # before the model, which is incomplete without it
    if isinstance(model, Pretrained):
        model.save_pretrained(folder)
    else:
        with replacing(folder / WEIGHTS) as (file,):
            safetensors.save_model(model, str(file))
    record(folder, (TASK, WEIGHTS, CONFIG, VOCABULARY))


def load_weights(model: nn.Module, folder: Path, grown: bool = False) -> None:
    """Load the weights that `save_model` wrote into a model of the same architecture.

    With `grown`, the model's body may have parts that the saved one does not have (`added_parts`).
    """
    path = folder / WEIGHTS
    check_intact(folder)
    if isinstance(model, Pretrained):
        model.load_weights(folder, grown)
        return
    if not path.is_file():
        raise FileNotFoundError(f"{path} not found: the folder holds no weights")
    try:
        safetensors.load_model(model, str(path))
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{path} does not fit the model {type(model).__name__}: {error}") from None


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; tied parameters only under their first name."""
    saved = model.state_dict().keys()
    everything = chain(model.named_parameters(), model.named_buffers())
    return {name: tensor for name, tensor in everything if name in saved}
