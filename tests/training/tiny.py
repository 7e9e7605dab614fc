"""Experiments that take a second."""

import string

import numpy as np

from trellisnet.data import SequenceData, TextData
from trellisnet.data.batches import Items
from trellisnet.training.config import Config, DataConfig, ModelConfig, TrainingConfig
from trellisnet.vocabulary import Vocabulary


class TinyItems(Items):
    def __init__(self, inputs, targets, lengths=None):
        self.inputs, self.targets, self.lengths = inputs, targets, lengths

    def __len__(self):
        return len(self.inputs)

    def take(self, indices, steps=None):
        return self.inputs[indices, :steps], self.targets[indices]


def tiny_text(kind="characters", tokens=400, words=7):
    generator = np.random.default_rng(0)
    ids = np.cumsum(generator.integers(1, 3, tokens)).astype(np.uint8) % words
    splits = {"train": ids, "valid": ids[:120], "test": ids[100:250]}
    names = list(string.printable[10:]) if kind == "characters" else ["<unk>", *(f"w{i}" for i in range(1, words))]
    return TextData("tiny", Vocabulary(names[:words], kind), splits)


def tiny_sequences(task="classification", items=48, steps=9, channels=2, ragged=False):
    generator = np.random.default_rng(0)
    x = generator.standard_normal((items, steps, channels)).astype(np.float32)
    lengths = generator.integers(2, steps + 1, items) if ragged else None
    if task == "tokens":
        x = generator.integers(0, 5, (items, steps))
        targets = np.roll(x, 1, axis=1)
        sizes = 5, 5
    elif task == "classification":
        targets = (x[:, 0, 0] > 0).astype(np.int64)
        sizes = channels, 2
    else:
        targets = x[:, :1, 0].copy()
        sizes = channels, 1
    parts = {"train": slice(0, items), "valid": slice(0, items // 3), "test": slice(items // 3, items // 2)}
    splits = {
        name: TinyItems(x[part], targets[part], None if lengths is None else lengths[part])
        for name, part in parts.items()
    }
    return SequenceData("tiny", task, *sizes, splits)


def tiny_config(model=None, text=True, **training):
    options = {"epochs": 2, "batch_size": 4, "log_every": 3, "learning_rate": 0.01, "evaluation_batch": 4}
    options |= {"steps": 6, "sample": 5} if text else {}
    sizes = {"hidden_size": 6, "num_layers": 3} | ({"embedding_size": 4} if text else {}) | (model or {})
    return Config(data=DataConfig("tiny"), model=ModelConfig(**sizes), training=TrainingConfig(**options | training))


def tiny_data(name):
    """In the place of one of the package's datasets, something like it."""
    if name in ("ptb-word", "wikitext-2", "wikitext-103"):
        return tiny_text("words", tokens=2000, words=20)
    if name in ("ptb-char", "python-library", "text"):
        return tiny_text("characters", tokens=2000, words=90)
    task = {"series": "regression", "adding": "regression", "copy-memory": "tokens"}.get(name, "classification")
    return tiny_sequences(task, items=300, steps=1020 if name == "copy-memory" else 40, channels=1)


def shrunk(config):
    """An experiment with its own options, but narrow and shallow, with small batches."""
    model, training = config.model, config.training
    model.embedding_size = model.embedding_size and 8
    model.hidden_size, model.output_size = 12, model.output_size and 9
    model.num_layers = min(model.num_layers, 4 if config.data.name != "copy-memory" else 10)
    model.aux_every = model.aux_every and 2
    model.groups, model.horizon = model.groups and [6, 6], model.horizon and 5
    training.batch_size = 4 * training.accumulate
    return config
