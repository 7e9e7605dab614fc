"""Convert the argument `data` of `fit` to a dataset and its entry in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trellisnet.data.registry import load
from trellisnet.data.sequences.data import SequenceData
from trellisnet.data.sequences.given import Split, from_arrays
from trellisnet.data.text.data import TextData
from trellisnet.data.translation.data import PairData
from trellisnet.training.config import DataConfig
from trellisnet.training.reading import checked_options

GIVEN = "given"  # the dataset's name in the configuration if the data was passed from Python
HELD_BACK = 0.1  # share of arrays that is used for validation


def read_data(
    data: Any, valid: Split = None, test: Split = None, classes: int | None = None, seed: int = 0
) -> tuple[DataConfig, TextData | SequenceData | PairData]:
    """The configuration and the dataset for any form of data that `fit` accepts.

    Args:
        data: a name; a mapping with a name and options; a `TextData` or `SequenceData`; or arrays, a pair (x, y).
        valid: only for arrays, as in `from_arrays`; default 0.1.
        test: only for arrays, as in `from_arrays`.
        classes: only for arrays: number of classes.
        seed: only for arrays: seed of the random split.

    Raises:
        TypeError: if `data` has none of these forms.
        ValueError: if `valid` or `test` is given for data that has its own splits.
    """
    if isinstance(data, (tuple, list)) and len(data) == 2 and not isinstance(data[0], str):
        share = HELD_BACK if valid is None else valid
        return DataConfig(GIVEN), from_arrays(*data, valid=share, test=test, classes=classes, seed=seed)
    for name, split in (("valid", valid), ("test", test)):
        if split is not None:
            raise ValueError(f"{name} belongs to arrays (x, y); a dataset has its own splits: got {name}={split!r}")
    if isinstance(data, (TextData, SequenceData, PairData)):
        return DataConfig(GIVEN), data
    options: dict[str, Any] = {"name": data} if isinstance(data, str) else data
    if not isinstance(options, Mapping) or not isinstance(options.get("name"), str):
        raise TypeError(
            "data must be the name of a dataset, a mapping with a name and options, a TextData, a SequenceData, or a "
            f"pair of arrays (x, y), got {type(data).__name__}"
        )
    plain = {key: _plain(value) for key, value in options.items()}
    name, root = plain.pop("name"), plain.pop("root", None)
    config = DataConfig(name, root, checked_options(name, plain, "data"))
    return config, load(config.name, root=config.root, **config.options)


def _plain(value: Any) -> Any:
    """A value as YAML has it: paths as text, NumPy's numbers and arrays as numbers and lists."""
    if isinstance(value, Path):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value
