"""Datasets and their batches. It knows nothing of models or training.

>>> from trellisnet.data import load
>>> data = load("copy-memory", steps=10)
>>> data.batches("train", batch_size=32).state_dict()["position"]
0
"""

from trellisnet.data.batches import Batch, Batches, ItemBatches, Items, TextBatches
from trellisnet.data.files.places import MissingDataError
from trellisnet.data.registry import DATASETS, load
from trellisnet.data.sequences.data import Scale, SequenceData
from trellisnet.data.sequences.given import from_arrays
from trellisnet.data.text.data import TextData
from trellisnet.vocabulary import Vocabulary

__all__ = [
    "DATASETS",
    "Batch",
    "Batches",
    "ItemBatches",
    "Items",
    "MissingDataError",
    "Scale",
    "SequenceData",
    "TextBatches",
    "TextData",
    "Vocabulary",
    "from_arrays",
    "load",
]
