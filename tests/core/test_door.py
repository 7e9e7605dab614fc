"""The engine has one door."""

import ast
from pathlib import Path

import trellisnet
from trellisnet.core import engine

SOURCE = Path(trellisnet.__file__).parent


def imported(path):
    """All modules that a file of the package imports, and the names it takes from them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} has a relative import"
            yield from ((node.module, alias.name) for alias in node.names)


def test_only_run_and_the_layout_are_imported_from_the_engine():
    found = set()
    for path in SOURCE.rglob("*.py"):
        if SOURCE / "core" / "engine" not in path.parents:
            names = [f"{module}.{name}" for module, name in imported(path)]
            found |= {name for name in names if name.startswith("trellisnet.core.engine")}
    # `explain` counts the bytes that the engine would keep, so it reads the layout of the storage; nothing else may
    assert found == {"trellisnet.core.engine.run", "trellisnet.core.engine.storage.Layout"}
    assert engine.__all__ == ["run"]


def test_the_engine_does_not_know_the_module():
    for path in (SOURCE / "core" / "engine").glob("*.py"):
        assert not any(module.startswith("trellisnet.core.trellis") for module, _ in imported(path)), path
