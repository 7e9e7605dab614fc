"""All datasets by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

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

DATASETS: dict[str, Callable[..., TextData | SequenceData]] = {
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
}


def load(name: str, root: str | Path | None = None, **options: Any) -> TextData | SequenceData:
    """Load a dataset by name.

    Args:
        name: one of `DATASETS`: a benchmark ("ptb-word", "ptb-char", "wikitext-2", "wikitext-103", "seq-mnist",
            "perm-mnist", "seq-cifar10", "music"), a stress test ("copy-memory", "adding"), "python-library", or your
            own "text", "series" or "ts".
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
    fixed = loader.keywords if isinstance(loader, partial) else {}
    known = {key: None for key in inspect.signature(loader).parameters if key not in fixed}
    if "root" in known:
        options["root"] = root
    elif root is not None and name in ("text", "series", "ts"):
        raise ValueError(f"root belongs to the benchmarks' files; the dataset {name!r} needs path")
    for option in options:
        pick(f"option of the dataset {name!r}", option, known)
    return loader(**options)
