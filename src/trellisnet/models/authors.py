"""Checkpoints of the authors' code: the state_dict of their language model, as `torch.save` wrote it."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# vocabulary, embedding, width: the number of layers in table 5 of the paper. The width of the authors' character
# model is 1050 + 200; the paper's table says 1000.
LAYERS = {
    (10_000, 400, 1400): 55,  # word PTB
    (10_000, 280, 1480): 55,  # word PTB, mixture of softmaxes
    (267_735, 512, 2112): 70,  # WikiText-103
    (50, 200, 1200): 125,  # character PTB
    (50, 200, 1250): 125,
}
GATES = [0, 3, 1, 2]  # theirs are input, output, candidate, forget; ours input, forget, output, candidate

# `tnet` may be wrapped for DropConnect (`module`, `_raw`); `network` lists the same modules again
_KERNEL = re.compile(r"tnet\.(?:module\.)?full_conv\.(bias2|weight[12])(_g|_v)?(?:_raw)?")
_AGAIN = {"network.0.": "tnet.", "network.1.": "mixsoft."}
_KERNEL_NAMES = {"bias2": "bias", "weight1": "weight_input", "weight2": "weight_hidden"}
_NORM_PARTS = {"_g": "original0", "_v": "original1"}


def read_checkpoint(path: Path, num_layers: int | None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The arguments of a `TrellisLM` and its parameters by name, from a file of the authors'."""
    theirs = _without_repeats(_load(path), path)
    tensors: dict[str, Tensor] = {}
    for name, tensor in theirs.items():
        if match := _KERNEL.fullmatch(name):
            own = _KERNEL_NAMES[match[1]]
            part = f"parametrizations.{own}.{_NORM_PARTS[match[2]]}" if match[2] else own
            tensors[f"net.kernel.{part}"] = _to_our_layout(tensor, name, path)
    kernel = dict(tensors)
    weight_norm = any("parametrizations" in name for name in kernel)
    stem, value = ("net.kernel.parametrizations.", ".original1") if weight_norm else ("net.kernel.", "")
    inputs, hidden = (kernel.get(f"{stem}{name}{value}") for name in ("weight_input", "weight_hidden"))
    encoder = theirs.get("encoder.weight")
    if encoder is None or inputs is None or hidden is None:
        found = {"encoder.weight": encoder, "tnet's weight1": inputs, "tnet's weight2": hidden}
        missing = ", ".join(name for name, tensor in found.items() if tensor is None)
        raise ValueError(f"{path} is not a model of the authors': {missing} missing")
    mixture = "mixsoft.latent.weight" in theirs
    decoder = theirs.get("mixsoft.decoder.weight" if mixture else "decoder.weight", encoder)
    tied = decoder.shape == encoder.shape and torch.equal(decoder, encoder)
    arguments: dict[str, Any] = {
        "vocab_size": encoder.shape[0],
        "embedding_size": encoder.shape[1],
        "hidden_size": hidden.shape[-1],
        "num_layers": _depth(path, (*encoder.shape, hidden.shape[-1]), num_layers),
        "output_size": theirs["mixsoft.latent.weight"].shape[1] if mixture else decoder.shape[1],
        "kernel_size": hidden.shape[0],
        "bias": "net.kernel.bias" in kernel,
        "weight_norm": weight_norm,
        "tied": tied,
        "init": "paper",
        "dtype": encoder.dtype,
    }
    tensors["embedding.weight"] = encoder
    if mixture:
        arguments |= {"head": "mos", "experts": theirs["mixsoft.prior.weight"].shape[0]}
        theirs = {name: tensor for name, tensor in theirs.items() if not name.startswith("decoder.")}  # not in use
    for name, tensor in theirs.items():
        if name != "encoder.weight" and not _KERNEL.fullmatch(name):
            own = "head." + name.removeprefix("mixsoft.").removeprefix("decoder.")
            if not (tied and own == "head.weight"):
                tensors[own] = tensor
    return arguments, tensors


def _load(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pickles in other protocols; what cannot be read is an error below
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"{path} is not a file of tensors alone, so it is not read: {reason}") from None
    if not isinstance(content, dict) or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise ValueError(f"{path} must hold a state_dict (names and tensors), got {type(content).__name__}")
    return {str(name).removeprefix("module."): tensor for name, tensor in content.items()}


def _without_repeats(theirs: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Their file lists most tensors twice, under the name of the part and as an entry of `network`."""
    kept: dict[str, Tensor] = {}
    for name, tensor in theirs.items():
        first = next((new + name[len(old) :] for old, new in _AGAIN.items() if name.startswith(old)), name)
        if first in kept and not torch.equal(kept[first], tensor):
            raise ValueError(f"{path}: {name} must be equal to {first}, which it repeats")
        kept.setdefault(first, tensor)
    return kept


def _to_our_layout(tensor: Tensor, name: str, path: Path) -> Tensor:
    """Conv kernels (4H, C, taps), or their biases or lengths, to (taps, 4H, C) in our order of the gates."""
    if tensor.shape[0] % 4 or tensor.dim() not in (1, 3):
        raise ValueError(
            f"{path}: {name} must be (4 * hidden, channels, taps) or (4 * hidden), got {tuple(tensor.shape)}"
        )
    ours: Tensor = tensor.unflatten(0, (4, -1))[GATES].flatten(0, 1)
    return ours.permute(2, 0, 1) if ours.dim() == 3 else ours


def _depth(path: Path, sizes: tuple[int, ...], num_layers: int | None) -> int:
    if num_layers is not None:
        return num_layers
    if sizes not in LAYERS:
        raise ValueError(
            f"{path}: num_layers is needed, because the file does not tell it and vocabulary, embedding and width "
            f"{sizes} are not those of a model of the paper's"
        )
    return LAYERS[sizes]
