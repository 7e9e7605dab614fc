"""The trained models that the package has, by name. Each is the folder of a run without what only training needs."""

from __future__ import annotations

from pathlib import Path

from trellisnet.core.checks import suggestion

FOLDER = Path(__file__).parents[1] / "pretrained"


def pretrained_names() -> list[str]:
    """The names that `from_pretrained` and `trellisnet evaluate` know without a folder.

    >>> "copy-memory" in pretrained_names()
    True
    """
    return sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def find_run(run: Path | str) -> Path:
    """The folder of a run, or of a pretrained model by its name; a folder of that name comes first.

    Raises:
        FileNotFoundError: a bare name that is neither; the message lists the pretrained models.
    """
    path = Path(run)
    bare = len(path.parts) == 1 and str(run) == path.name and path.name not in (".", "..")
    if path.exists() or not bare:
        return path
    names = pretrained_names()
    if path.name not in names:
        hint = suggestion(path.name, names)
        known = ", ".join(names)
        raise FileNotFoundError(f"{run} is not a run, a saved model or a pretrained model ({known}){hint}")
    return FOLDER / path.name


def find_model(folder: Path | str) -> Path:
    """The folder of a saved model, or of a pretrained one by its name. Errors as of `find_run`."""
    found = find_run(folder)
    return found / "best" if found.parent == FOLDER else found
