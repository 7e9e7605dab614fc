"""Language models of this package in `transformers`: `AutoModelForCausalLM`, `generate`, `Trainer`, `pipeline`.

Importing this module is light. `register()`, or the first use of one of its classes, imports transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trellisnet.extras import require

if TYPE_CHECKING:
    from trellisnet.integrations.transformers.cache import StateCache as StateCache
    from trellisnet.integrations.transformers.config import TrellisNetConfig as TrellisNetConfig
    from trellisnet.integrations.transformers.model import TrellisNetForCausalLM as TrellisNetForCausalLM
    from trellisnet.integrations.transformers.tokenizer import TrellisNetTokenizer as TrellisNetTokenizer

_HOMES = {
    "StateCache": "cache",
    "TrellisNetConfig": "config",
    "TrellisNetForCausalLM": "model",
    "TrellisNetTokenizer": "tokenizer",
}
__all__ = ["StateCache", "TrellisNetConfig", "TrellisNetForCausalLM", "TrellisNetTokenizer", "register"]
OLDEST = 5  # the first major version with this interface of caches and configurations


def require_transformers() -> Any:
    """Import and return the `transformers` package.

    Raises:
        ImportError: it is missing or too old; names the extra that installs it.
    """
    transformers = require("transformers", "hf", __name__)
    if int(transformers.__version__.split(".")[0]) < OLDEST:
        raise ImportError(f"the extra 'hf' needs transformers {OLDEST} or newer, got {transformers.__version__}")
    return transformers


def register() -> None:
    """Make the `Auto...` classes of transformers know the models of this package; further calls change nothing."""
    library = require_transformers()
    config, model, tokenizer = (_load(name) for name in __all__[1:4])
    library.AutoConfig.register(config.model_type, config, exist_ok=True)
    library.AutoModelForCausalLM.register(config, model, exist_ok=True)
    library.AutoTokenizer.register(config, tokenizer, exist_ok=True)


def _load(name: str) -> Any:
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    register()
    return _load(name)
