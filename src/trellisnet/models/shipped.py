"""The trained models that the package has, by name.

Each is the folder of a run without what only training needs. Its checksums.json covers all of its files, which are
compared with it whenever the model is asked for by its name.
"""

from __future__ import annotations

from pathlib import Path

from trellisnet.checksums import damage, record
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
        ValueError: a file of the pretrained model was damaged; the message names it.
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
    found = FOLDER / path.name
    if (damaged := damage(found)) is not None:
        raise ValueError(f"the pretrained model {path.name} is damaged: {damaged} in {found}; install trellisnet again")
    return found


def seal(folder: Path) -> None:
    """Record the checksums of all files of a pretrained model."""
    record(folder, (path.relative_to(folder).as_posix() for path in folder.rglob("*")))


def find_model(folder: Path | str) -> Path:
    """The folder of a saved model, or of a pretrained one by its name. Errors as of `find_run`."""
    found = find_run(folder)
    return found / "best" if found.parent == FOLDER else found
