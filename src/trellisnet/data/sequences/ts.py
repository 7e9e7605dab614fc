"""The `.ts` files of the UEA and UCR archives: series of one or several channels, each with the label of its class.

A file has comments, lines with `#` or `%`; a header of lines such as `@dimensions 12`; and after `@data` one line per
series: its channels, separated by colons, each with the values of all steps, separated by commas; then a colon and the
label.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trellisnet.core.checks import positive_int
from trellisnet.data.checks import check_file
from trellisnet.data.sequences.data import SequenceData
from trellisnet.data.sequences.series import Series
from trellisnet.data.sequences.whole import whole_series

SUFFIX = ".ts"
FLAGS = ("timestamps", "missing", "univariate", "equallength", "targetlabel")
NUMBERS = ("dimensions", "serieslength")
REFUSED = ("timestamps", "missing", "targetlabel")  # series with times, with gaps, or with a number in place of a label
Header = dict[str, list[str]]  # the words after each key


def load_ts(path: str | Path, test_path: str | Path, *, valid_items: int = 0, standardise: bool = True) -> SequenceData:
    """Load a classification problem of the UEA or UCR archive from its two `.ts` files. Lengths may be unequal.

    Args:
        path: the file with the training series.
        test_path: the file with the test series.
        valid_items: n training series, drawn at random but always the same, become the split "valid"; 0: there is
            none.
        standardise: scale every channel to mean 0 and deviation 1 in the training split.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a file is not of this form, the files do not fit together, or `valid_items` is too large.
    """
    training, test = (read_ts(Path(each).expanduser()) for each in (path, test_path))
    if (got := test.values.shape[1]) != (channels := training.values.shape[1]):
        raise ValueError(f"{test.path}: must have {channels} channels, as {training.path}, got {got}")
    if new := sorted(set(_labels(test)) - set(_labels(training))):
        raise ValueError(f"{test.path}: must have labels that {training.path} has, got {new[0]!r}")
    if positive_int("valid_items", valid_items, minimum=0) >= len(training):
        raise ValueError(f"valid_items must leave some of the {len(training):,} training series, got {valid_items}")
    split = np.repeat(["train", "test"], [len(training), len(test)])
    split[np.random.default_rng(0).permutation(len(training))[:valid_items]] = "valid"
    together = Series(
        training.path,
        np.concatenate([training.values, test.values]),
        np.concatenate([training.lengths, test.lengths]),
        [*training.names, *test.names],
        np.array([*_labels(training), *_labels(test)]),
        split,
    )
    return whole_series(together, "classification", None, standardise)


def read_ts(path: Path) -> Series:
    """Read the series of a `.ts` file, with their labels.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not of this form; the message names the line.
    """
    check_file(path)
    with path.open(encoding="utf-8") as file:
        lines = enumerate(file, 1)
        header = _read_header(path, lines)
        classes = header["classlabel"][1:]
        series: list[NDArray[np.float64]] = []
        labels: list[str] = []
        for number, line in lines:
            if text := line.strip():
                *channels, label = (part.strip() for part in text.split(":"))
                where = f"{path}, line {number}"
                if label not in classes:
                    raise ValueError(f"{where}: must end in one of the labels {', '.join(classes)}, got {label[:40]!r}")
                values = [_values(f"{where}, channel {i}", channel) for i, channel in enumerate(channels, 1)]
                _check_shape(where, header, values, series[0] if series else None)
                series.append(np.array(values).T)  # (T, C)
                labels.append(label)
    if not series:
        raise ValueError(f"{path}: has no series after @data")
    lengths = np.array([len(each) for each in series], dtype=np.int64)
    return Series(path, np.concatenate(series), lengths, [str(i) for i in range(len(series))], np.array(labels))


def _labels(series: Series) -> list[str]:
    return [str(label) for label in np.asarray(series.targets)]


def _read_header(path: Path, lines: Iterable[tuple[int, str]]) -> Header:
    """Read up to `@data`, and check what is declared."""
    header: Header = {}
    for number, line in lines:
        text, where = line.strip(), f"{path}, line {number}"
        if not text or text.startswith(("#", "%")):
            continue
        if not text.startswith("@"):
            raise ValueError(f"{where}: must begin with @, # or % before @data, got {text[:40]!r}")
        name, *words = text[1:].split()
        key = name.lower()
        if key == "data":
            if "classlabel" not in header:
                raise ValueError(f"{where}: must follow a line @classLabel true and the labels")
            return header
        if key in header:
            raise ValueError(f"{where}: @{name} must occur once")
        _check_entry(f"{where}: @{name}", key, words)
        header[key] = words
    raise ValueError(f"{path}: must have a line @data")


def _check_entry(where: str, key: str, words: list[str]) -> None:
    if key in FLAGS:
        allowed = ("false",) if key in REFUSED else ("true", "false")
        if len(words) != 1 or words[0].lower() not in allowed:
            raise ValueError(f"{where} must be {' or '.join(allowed)}, got {' '.join(words)!r}")
    elif key in NUMBERS:
        if len(words) != 1 or not words[0].isdecimal() or int(words[0]) < 1:
            raise ValueError(f"{where} must be an integer >= 1, got {' '.join(words)!r}")
    elif key == "classlabel":
        if len(words) < 3 or words[0].lower() != "true":
            raise ValueError(f"{where} must be true and at least two labels, got {' '.join(words)!r}")
    elif key != "problemname":
        raise ValueError(f"{where} is not known in a header")


def _values(where: str, channel: str) -> list[float]:
    found = []
    for step, text in enumerate(channel.split(","), 1):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"{where}, step {step}: must be a finite number, got {text.strip()[:40]!r}")
        found.append(value)
    return found


def _check_shape(where: str, header: Header, values: list[list[float]], first: NDArray[np.float64] | None) -> None:
    """Check a series of some channels against the header and the first series (T, C)."""
    steps_before, channels_before = (None, None) if first is None else first.shape
    channels = _declared(header, "dimensions", 1 if _flag(header, "univariate") else channels_before)
    if not values or (channels is not None and len(values) != channels):
        raise ValueError(f"{where}: must have {channels or 'some'} channels and a label, got {len(values)} channels")
    for i, channel in enumerate(values, 1):
        if len(channel) != len(values[0]):
            raise ValueError(
                f"{where}, channel {i}: must have {len(values[0])} steps, as channel 1, got {len(channel)}"
            )
    if (equal := _flag(header, "equallength")) is not False:
        steps = _declared(header, "serieslength", steps_before if equal else None)
        if steps is not None and len(values[0]) != steps:
            raise ValueError(f"{where}: must have {steps} steps, the length of all series, got {len(values[0])}")


def _declared(header: Header, key: str, default: int | None) -> int | None:
    return int(header[key][0]) if key in header else default


def _flag(header: Header, key: str) -> bool | None:
    return header[key][0].lower() == "true" if key in header else None
