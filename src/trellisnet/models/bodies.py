"""The bodies of this package by name. A body's module is imported when it is needed, so this import is light."""

from __future__ import annotations

import inspect
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trellisnet.core.checks import one_of, unknown_option

if TYPE_CHECKING:
    from torch import nn

# name: the Python module of a body, its class there, and the dataclass of its options there. The options of trellises
# are in a module of their own that does not import torch, so that `--help` is fast.
BODIES = {
    "trellis": ("trellisnet.core.trellis", "TrellisNet", "TrellisOptions"),
    "attention-trellis": ("trellisnet.core.attention", "AttentionTrellis", "AttentionTrellisOptions"),
    "lstm": ("trellisnet.baselines.rnn", "LstmBody", "RnnOptions"),
    "gru": ("trellisnet.baselines.rnn", "GruBody", "RnnOptions"),
    "melis-lstm": ("trellisnet.baselines.melis", "MelisLstmBody", "MelisOptions"),
    "ind-rnn": ("trellisnet.baselines.ind_rnn", "IndRnnBody", "IndRnnOptions"),
    "dilated-gru": ("trellisnet.baselines.dilated_gru", "DilatedGruBody", "DilatedGruOptions"),
    "nas": ("trellisnet.baselines.nas", "NasBody", "HiddenDropoutOptions"),
    "enas": ("trellisnet.baselines.genotype", "EnasBody", "HiddenDropoutOptions"),
    "darts": ("trellisnet.baselines.genotype", "DartsBody", "DartsOptions"),
    "hyper-lstm": ("trellisnet.baselines.hyper_lstm", "HyperLstmBody", "HyperLstmOptions"),
    "fast-slow-lstm": ("trellisnet.baselines.fast_slow_lstm", "FastSlowLstmBody", "FastSlowLstmOptions"),
    "rmc": ("trellisnet.baselines.relational_memory", "RelationalMemoryBody", "RelationalMemoryOptions"),
    "tcn": ("trellisnet.baselines.tcn", "TcnBody", "TcnOptions"),
    "gated-conv": ("trellisnet.baselines.gated_conv", "GatedConvBody", "GatedConvOptions"),
    "qrnn": ("trellisnet.baselines.qrnn", "QrnnBody", "QrnnOptions"),
    "transformer": ("trellisnet.baselines.transformer", "TransformerBody", "TransformerOptions"),
    "min-gru": ("trellisnet.baselines.min_gru", "MinGruBody", "MinGruOptions"),
    "lru": ("trellisnet.baselines.lru", "LruBody", "LruOptions"),
    "xlstm": ("trellisnet.baselines.xlstm", "XlstmBody", "XlstmOptions"),
}


def body_options(name: str) -> type[Any]:
    """Return the dataclass that declares the options of a body."""
    file, _, options = BODIES[one_of("body", name, BODIES)]
    home = "trellisnet.core.options" if file.startswith("trellisnet.core.") else file
    kind: type[Any] = getattr(import_module(home), options)
    return kind


def make_body(name: str, input_size: int, **options: Any) -> nn.Module:
    """Build a body by name.

    Args:
        name: one of `BODIES`.
        input_size: channels of its input.
        options: the body's own options, `device` and `dtype`.

    Raises:
        ValueError: no body has this name, or an option has a bad value.
        TypeError: the body has no such option.
    """
    file, body, _ = BODIES[one_of("body", name, BODIES)]
    known = {*(field.name for field in fields(body_options(name))), "device", "dtype"}
    for option in options:
        if option not in known:
            raise TypeError(f"{option} is not an option of the body {name!r}{unknown_option(option, known)}")
    module: nn.Module = getattr(import_module(file), body)(input_size, **options)
    return module


def chooses_depth(name: str) -> bool:
    """Whether a call of the body of that name can choose its depth."""
    file, body, _ = BODIES[one_of("body", name, BODIES)]
    return "depth" in inspect.signature(getattr(import_module(file), body).forward).parameters


def name_of(body: nn.Module) -> str | None:
    """Return the name under which `make_body` builds this kind of body; None for a user-defined body."""
    kind = (type(body).__module__, type(body).__name__)
    return next((name for name, (file, body_name, _) in BODIES.items() if (file, body_name) == kind), None)


def options_of(body: nn.Module) -> dict[str, Any]:
    """Return the current options of a body of this package by name; empty for a user-defined body."""
    name = name_of(body)
    return {} if name is None else {field.name: getattr(body, field.name) for field in fields(body_options(name))}
