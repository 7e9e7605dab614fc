"""Arguments that have no flag."""

from __future__ import annotations


def take_positional(name: str, arguments: list[str]) -> list[str]:
    """Give the first argument its flag: `evaluate runs/demo-1 ...` means `evaluate --run runs/demo-1 ...`."""
    if {"-h", "--help"} & set(arguments) or any(argument.split("=")[0] == f"--{name}" for argument in arguments):
        return arguments
    if not arguments or arguments[0].startswith("-"):
        raise ValueError(f"{name} is needed first")
    return [f"--{name}", *arguments]
