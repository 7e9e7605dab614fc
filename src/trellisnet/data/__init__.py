"""Datasets and their batches. This package does not depend on models or training.

>>> from trellisnet.data import load
>>> data = load("copy-memory", steps=10)
>>> data.batches("train", batch_size=32).state_dict()["position"]
0
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trellisnet.data.batches import Batch as Batch
    from trellisnet.data.batches import Batches as Batches
    from trellisnet.data.batches import ItemBatches as ItemBatches
    from trellisnet.data.batches import Items as Items
    from trellisnet.data.files.places import MissingDataError as MissingDataError
    from trellisnet.data.registry import DATASETS as DATASETS
    from trellisnet.data.registry import load as load
    from trellisnet.data.sequences.data import Scale as Scale
    from trellisnet.data.sequences.data import SequenceData as SequenceData
    from trellisnet.data.sequences.given import from_arrays as from_arrays
    from trellisnet.data.text.batches import TextBatches as TextBatches
    from trellisnet.data.text.data import TextData as TextData
    from trellisnet.vocabulary import Vocabulary as Vocabulary

# Imported when they are first asked for: a configuration only asks `kinds`, which needs no torch.
_HOMES = {
    "DATASETS": "data.registry",
    "Batch": "data.batches",
    "Batches": "data.batches",
    "ItemBatches": "data.batches",
    "Items": "data.batches",
    "MissingDataError": "data.files.places",
    "Scale": "data.sequences.data",
    "SequenceData": "data.sequences.data",
    "TextBatches": "data.text.batches",
    "TextData": "data.text.data",
    "Vocabulary": "vocabulary",
    "from_arrays": "data.sequences.given",
    "load": "data.registry",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"trellisnet.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
