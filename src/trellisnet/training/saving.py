"""The weights of any model: one of ours, which also saves what it was built with, or a module of the user's own."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn

from trellisnet.files import replacing
from trellisnet.models.pretrained import WEIGHTS, Pretrained


def save_model(model: nn.Module, folder: Path) -> None:
    """Write a model into a folder, which is made if need be. An older model there is replaced as a whole."""
    if isinstance(model, Pretrained):
        model.save_pretrained(folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / WEIGHTS) as (file,):
        safetensors.save_model(model, str(file))


def load_weights(model: nn.Module, folder: Path) -> None:
    """Copy the weights that `save_model` wrote into an equal model."""
    path = folder / WEIGHTS
    if isinstance(model, Pretrained):
        model.load_weights(folder)
        return
    if not path.is_file():
        raise FileNotFoundError(f"{path} not found: the folder holds no weights")
    try:
        safetensors.load_model(model, str(path))
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{path} does not fit the model {type(model).__name__}: {error}") from None


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and saved buffers by name; of those that are tied, the first name only."""
    saved = model.state_dict().keys()
    everything = chain(model.named_parameters(), model.named_buffers())
    return {name: tensor for name, tensor in everything if name in saved}
