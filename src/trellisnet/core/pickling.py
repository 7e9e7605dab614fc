"""Pickling of modules with weight norm, for programs that send a module to processes they start."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize


class PicklesWeightNorm(nn.Module):
    """A module that can be pickled with weight norm too.

    Weight norm gives a module a class of its own, which no other process can import, so torch refuses to pickle it. We
    pickle the class that the module had before and its attributes; weight norm is registered again when it is loaded.
    """

    def __reduce_ex__(self, protocol: Any) -> Any:
        if not parametrize.is_parametrized(self):
            return super().__reduce_ex__(protocol)
        names = tuple(self.get_submodule("parametrizations")._modules)
        kind, attributes = parametrize.type_before_parametrizations(self), dict(self.__dict__)
        del attributes["_load_state_dict_pre_hooks"]  # functions of torch's weight norm, which sets them again
        return _with_weight_norm, (kind, names), attributes


def _with_weight_norm(kind: type[nn.Module], names: tuple[str, ...]) -> nn.Module:
    """Return a module of that class with weight norm of the named weights; pickle then sets its attributes."""
    module = kind.__new__(kind)
    nn.Module.__init__(module)
    for name in names:
        module.register_parameter(name, nn.Parameter(torch.ones(1, 1, 1)))
        parametrizations.weight_norm(module, name)
    return module
