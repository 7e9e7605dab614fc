"""Read checkpoints of the authors' code: the state_dict of their language model, written by `torch.save`."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# (vocabulary, embedding, width): the number of layers in table 5 of the paper. The width of the authors' character
# model is 1050 + 200; the paper's table says 1000.
LAYERS = {
    (10_000, 400, 1400): 55,  # word PTB
    (10_000, 280, 1480): 55,  # word PTB, mixture of softmaxes
    (267_735, 512, 2112): 70,  # WikiText-103
    (50, 200, 1200): 125,  # character PTB
    (50, 200, 1250): 125,
}
# their order of the gates is input, output, candidate, forget; ours is input, forget, output, candidate
GATES = [0, 3, 1, 2]

# `tnet` may be wrapped for DropConnect (`module`, `_raw`); `network` lists the same modules a second time
_KERNEL = re.compile(r"tnet\.(?:module\.)?full_conv\.(bias2|weight[12])(_g|_v)?(?:_raw)?")
_REPEATED = {"network.0.": "tnet.", "network.1.": "mixsoft."}
_KERNEL_NAMES = {"bias2": "bias", "weight1": "weight_input", "weight2": "weight_hidden"}
_NORM_PARTS = {"_g": "original0", "_v": "original1"}


def read_checkpoint(path: Path, num_layers: int | None) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, str]]:
    """Read a checkpoint of the authors' code.

    Args:
        path: the file.
        num_layers: depth of the model; None: the paper's depth for models of the paper's sizes.

    Returns:
        The arguments of a `TrellisLM`, its parameters by name, and the authors' name of each parameter.

    Raises:
        ValueError: the file is damaged, is not such a model, or `num_layers` is needed and not given.
    """
    theirs = _without_repeats(_load(path), path)
    mixture = any(name.startswith("mixsoft.") for name in theirs)
    if mixture:
        # with a mixture, their model has a decoder that it does not use
        theirs = {name: tensor for name, tensor in theirs.items() if not name.startswith("decoder.")}
    names = {_our_name(name): name for name in theirs}
    tensors = {ours: _to_our_layout(theirs[name], name, path) for ours, name in names.items()}

    weight_norm = any("parametrizations" in name for name in tensors)
    stem, value = ("net.kernel.parametrizations.", ".original1") if weight_norm else ("net.kernel.", "")
    head = "mixsoft." if mixture else ""
    needed = {
        "embedding.weight": "encoder.weight",
        "head.weight": f"{head}decoder.weight",
        f"{stem}weight_input{value}": "tnet's weight1",
        f"{stem}weight_hidden{value}": "tnet's weight2",
        "net.kernel.bias": "tnet's bias2",
    }
    if mixture:
        needed |= {f"head.{part}.weight": f"mixsoft.{part}.weight" for part in ("latent", "prior")}
    for ours, name in needed.items():
        dimensions = 1 if name.endswith("bias2") else 3 if name.startswith("tnet") else 2
        if ours not in tensors or tensors[ours].dim() != dimensions:
            found = f"has shape {tuple(tensors[ours].shape)}" if ours in tensors else "is missing"
            raise ValueError(f"{path} is not a model of the authors': {name} {found}")
    encoder, decoder, inputs, hidden = (tensors[name] for name in list(needed)[:4])
    if hidden.shape[2] != 4 * hidden.shape[1] or inputs.shape[1:] != (encoder.shape[1], hidden.shape[2]):
        expected = "(4 * hidden, embedding, taps) and (4 * hidden, hidden, taps)"
        got = " and ".join(str(tuple(theirs[names[name]].shape)) for name in list(needed)[2:4])
        raise ValueError(
            f"{path} is not a model of the authors': tnet's weight1 and weight2 must be {expected}, got {got}"
        )
    tied = decoder.shape == encoder.shape and torch.equal(decoder, encoder)
    arguments: dict[str, Any] = {
        "vocab_size": encoder.shape[0],
        "embedding_size": encoder.shape[1],
        "hidden_size": hidden.shape[1],
        "num_layers": _depth(path, (*encoder.shape, hidden.shape[1]), num_layers),
        "output_size": tensors["head.latent.weight"].shape[1] if mixture else decoder.shape[1],
        "kernel_size": hidden.shape[0],
        "weight_norm": weight_norm,
        "tied": tied,
        "init": "paper",
        "dtype": encoder.dtype,
    }
    if mixture:
        arguments |= {"head": "mos", "experts": tensors["head.prior.weight"].shape[0]}
    if tied:
        del tensors["head.weight"]
    biases = {f"head.{part}bias": f"mixsoft.{part}bias" for part in ("latent.", "prior.")}
    return arguments, tensors, {**biases, "head.bias": f"{head}decoder.bias", **names}


def _our_name(theirs: str) -> str:
    if match := _KERNEL.fullmatch(theirs):
        own = _KERNEL_NAMES[match[1]]
        return f"net.kernel.parametrizations.{own}.{_NORM_PARTS[match[2]]}" if match[2] else f"net.kernel.{own}"
    if theirs == "encoder.weight":
        return "embedding.weight"
    return "head." + theirs.removeprefix("mixsoft.").removeprefix("decoder.")


def _load(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols; a file that cannot be read is an error below
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception:  # torch raises many types, and advises to read the file in a way that executes its content
        raise ValueError(f"{path} is damaged or holds more than tensors and their names, so it is not read") from None
    if not isinstance(content, dict) or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise ValueError(f"{path} must hold a state_dict (names and tensors), got {type(content).__name__}")
    return {str(name).removeprefix("module."): tensor for name, tensor in content.items()}


def _without_repeats(theirs: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Drop repeated tensors: the file lists most of them twice, by module name and as an entry of `network`."""
    kept: dict[str, Tensor] = {}
    for name, tensor in theirs.items():
        first = next((new + name[len(old) :] for old, new in _REPEATED.items() if name.startswith(old)), name)
        if first in kept and not torch.equal(kept[first], tensor):
            raise ValueError(f"{path}: {name} must be equal to {first}, which it repeats")
        kept.setdefault(first, tensor)
    return kept


def _to_our_layout(tensor: Tensor, name: str, path: Path) -> Tensor:
    """Convert kernels (4H, C, taps), biases (4H) and weight norms to our layout (taps, C, 4H) and order of gates."""
    if not _KERNEL.fullmatch(name):
        return tensor
    if tensor.dim() not in (1, 3) or tensor.shape[0] % 4:
        shape = tuple(tensor.shape)
        raise ValueError(f"{path}: {name} must be (4 * hidden, channels, taps) or (4 * hidden), got {shape}")
    ours: Tensor = tensor.unflatten(0, (4, -1))[GATES].flatten(0, 1)
    return ours.permute(2, 1, 0) if ours.dim() == 3 else ours


def _depth(path: Path, sizes: tuple[int, ...], num_layers: int | None) -> int:
    if num_layers is not None:
        return num_layers
    if sizes not in LAYERS:
        raise ValueError(
            f"{path}: num_layers is needed, because the file does not contain it and vocabulary, embedding and width "
            f"{sizes} are not those of a model of the paper"
        )
    return LAYERS[sizes]
