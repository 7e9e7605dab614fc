"""Packages that only some users need: imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def require(module: str, extra: str, what: str, package: str | None = None) -> Any:
    """Import and return a module of an optional package.

    Args:
        module: its name, such as "pyarrow.parquet".
        extra: the extra of this package that installs it.
        what: what needs it, the subject of the error.
        package: the name under which it is installed; default the first part of `module`.

    Raises:
        ImportError: it is not installed; names the extra.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = package or module.partition(".")[0]
        raise ImportError(f"{what} needs the {package} package, of the extra {extra!r}") from error
