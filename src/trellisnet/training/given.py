"""What `fit` can be given to learn from, as a dataset and as what a run's configuration says of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trellisnet.data.registry import load
from trellisnet.data.sequences.data import SequenceData
from trellisnet.data.sequences.given import Split, from_arrays
from trellisnet.data.text.data import TextData
from trellisnet.training.config import DataConfig

GIVEN = "given"  # the name of data that came from Python, in a configuration
HELD_BACK = 0.1  # of arrays, to choose the best model by


def read_data(
    data: Any, valid: Split = None, test: Split = None, classes: int | None = None, seed: int = 0
) -> tuple[DataConfig, TextData | SequenceData]:
    """A dataset of anything that `fit` takes.

    Args:
        data: a name; a mapping with a name and options; a `TextData` or `SequenceData`; or arrays, a pair (x, y).
        valid: of arrays, as `from_arrays` has it; default a tenth.
        test: of arrays.
        classes: of arrays.
        seed: of arrays.
    """
    if isinstance(data, (tuple, list)) and len(data) == 2 and not isinstance(data[0], str):
        share = HELD_BACK if valid is None else valid
        return DataConfig(GIVEN), from_arrays(*data, valid=share, test=test, classes=classes, seed=seed)
    for name, split in (("valid", valid), ("test", test)):
        if split is not None:
            raise ValueError(f"{name} belongs to arrays (x, y); a dataset has splits of its own: got {name}={split!r}")
    if isinstance(data, (TextData, SequenceData)):
        return DataConfig(GIVEN), data
    options: dict[str, Any] = {"name": data} if isinstance(data, str) else data
    if not isinstance(options, Mapping) or not isinstance(options.get("name"), str):
        raise TypeError(
            "data must be the name of a dataset, a mapping with a name and options, a TextData, a SequenceData, or a "
            f"pair of arrays (x, y), got {type(data).__name__}"
        )
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}
    config = DataConfig(plain.pop("name"), plain.pop("root", None), plain)
    return config, load(config.name, root=config.root, **config.options)
