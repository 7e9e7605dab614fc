"""All datasets by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial, reduce
from operator import or_
from pathlib import Path
from typing import Any, get_args, get_type_hints

from trellisnet.data.checks import pick
from trellisnet.data.sequences.data import SequenceData
from trellisnet.data.sequences.images import load_cifar10, load_mnist
from trellisnet.data.sequences.music import load_music
from trellisnet.data.sequences.own import load_series
from trellisnet.data.sequences.synthetic import load_adding, load_copy_memory
from trellisnet.data.sequences.ts import load_ts
from trellisnet.data.text.corpora import CORPORA, load_corpus
from trellisnet.data.text.data import TextData
from trellisnet.data.text.library import load_library
from trellisnet.data.text.own import load_text
from trellisnet.data.translation.data import PairData
from trellisnet.data.translation.multi30k import load_multi30k
from trellisnet.data.translation.own import load_translation

DATASETS: dict[str, Callable[..., TextData | SequenceData | PairData]] = {
    **{name: partial(load_corpus, name) for name in CORPORA},
    "seq-mnist": partial(load_mnist, permuted=False),
    "perm-mnist": partial(load_mnist, permuted=True),
    "seq-cifar10": load_cifar10,
    "music": load_music,
    "copy-memory": load_copy_memory,
    "adding": load_adding,
    "python-library": load_library,
    "text": load_text,
    "series": load_series,
    "ts": load_ts,
    "multi30k": load_multi30k,
    "translation": load_translation,
}


@dataclass(frozen=True)
class DataOption:
    """An option of a dataset: a parameter of its function.

    Attributes:
        hint: its type; a path is text.
        default: its default.
        needed: whether it has none.
        help: its description.
    """

    hint: Any
    default: Any
    needed: bool
    help: str


@cache
def dataset_options(name: str) -> dict[str, DataOption]:
    """The options of a dataset by name, except `root`.

    >>> dataset_options("adding")["steps"].default
    600
    """
    from docstring_parser import parse  # noqa: PLC0415

    loader = pick("name", name, DATASETS)
    function, fixed = (loader.func, loader.keywords) if isinstance(loader, partial) else (loader, {})
    hints, texts = (
        get_type_hints(function),
        {each.arg_name: each.description for each in parse(function.__doc__).params},
    )
    return {
        key: DataOption(
            _without_path(hints[key]),
            None if parameter.default is parameter.empty else parameter.default,
            parameter.default is parameter.empty,
            " ".join((texts.get(key) or "").split()),
        )
        for key, parameter in inspect.signature(loader).parameters.items()
        if key not in (*fixed, "root")
    }


def _without_path(hint: Any) -> Any:
    """A type without `Path`, which YAML and flags cannot give."""
    kinds = [kind for kind in get_args(hint) if kind is not Path]
    return reduce(or_, kinds) if Path in get_args(hint) else hint


def load(name: str, root: str | Path | None = None, **options: Any) -> TextData | SequenceData | PairData:
    """Load a dataset by name.

    Args:
        name: one of `DATASETS`: a benchmark ("ptb-word", "ptb-char", "wikitext-2", "wikitext-103", "seq-mnist",
            "perm-mnist", "seq-cifar10", "music", "multi30k"), a stress test ("copy-memory", "adding"),
            "python-library", or your own "text", "series", "ts" or "translation".
        root: a folder to search first for the files of a benchmark.
        options: options of the dataset: the parameters of its function in `DATASETS`.

    Raises:
        ValueError: there is no such dataset or option, or a file is damaged or not the expected one.
        MissingDataError: the files of a benchmark are not found and cannot be downloaded.

    >>> data = load("adding", steps=50)
    >>> batch = next(iter(data.batches("train", batch_size=4)))
    >>> tuple(batch.inputs.shape), tuple(batch.targets.shape)
    ((4, 50, 2), (4, 1))
    """
    loader = pick("name", name, DATASETS)
    known = dataset_options(name)
    if not isinstance(options.get("path", ""), (str, Path)):
        raise TypeError(f"path must be a path, got {options['path']!r}")
    for option in options:
        pick(f"option of the dataset {name!r}", option, known)
    if "root" in inspect.signature(loader).parameters:
        options["root"] = root
    elif root is not None and name in ("text", "series", "ts", "translation"):
        raise ValueError(f"root belongs to the benchmarks' files; the dataset {name!r} needs path")
    for option, declared in known.items():
        if declared.needed and option not in options:
            raise ValueError(f"the dataset {name!r} needs the option {option}: {declared.help}")
    return loader(**options)
