"""Experiments that take a second."""

import string
from dataclasses import replace

import numpy as np

from trellisnet.data import SequenceData, TextData
from trellisnet.data.batches import Items
from trellisnet.data.kinds import KINDS
from trellisnet.data.translation.data import PairData, PairItems
from trellisnet.training.config import Config, DataConfig, TrainingConfig, model_config
from trellisnet.vocabulary import Vocabulary


class TinyItems(Items):
    def __init__(self, inputs, targets, lengths=None):
        self.inputs, self.targets, self.lengths = inputs, targets, lengths
        self.every_step = targets.shape[:2] == inputs.shape[:2]

    def __len__(self):
        return len(self.inputs)

    def take(self, indices, steps=None):
        targets = self.targets[indices]
        return self.inputs[indices, :steps], targets[:, :steps] if self.every_step else targets


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
    elif task == "tagging":
        targets = (x[..., 0] > 0).astype(np.int64) + (x[..., 1] > 1)
        sizes = channels, 3
    elif task == "labels":
        targets = (x > 0).astype(np.float32)
        sizes = channels, channels
    else:
        targets = x[:, :1, 0].copy()
        sizes = channels, 1
    parts = {"train": slice(0, items), "valid": slice(0, items // 3), "test": slice(items // 3, items // 2)}
    splits = {
        name: TinyItems(x[part], targets[part], None if lengths is None else lengths[part])
        for name, part in parts.items()
    }
    return SequenceData("tiny", task, *sizes, splits)


def tiny_pairs(items=60):
    """Sentences of words, and the same words backwards."""
    generator = np.random.default_rng(0)
    words = ["<eos>", "<unk>", *"abcde"]
    rows = [generator.integers(2, 7, generator.integers(1, 6)).tolist() for _ in range(items)]
    sources, targets = [[*row, 0] for row in rows], [[*reversed(row), 0] for row in rows]
    parts = {"train": slice(0, items), "valid": slice(0, items // 3), "test": slice(items // 3, items // 2)}
    splits = {name: PairItems(sources[part], targets[part]) for name, part in parts.items()}
    return PairData("tiny", Vocabulary(words, "words"), Vocabulary(words, "words"), splits)


def tiny_config(model=None, text=True, **training):
    options = {"epochs": 2, "batch_size": 4, "log_every": 3, "learning_rate": 0.01, "evaluation_batch": 4}
    options |= {"steps": 6, "sample": 5} if text else {}
    sizes = {"hidden_size": 6, "num_layers": 3} | ({"embedding_size": 4} if text else {}) | (model or {})
    sizes = {name: value for name, value in sizes.items() if value is not None}
    name = "python-library" if text else "copy-memory" if "embedding_size" in sizes else "seq-mnist"
    made = model_config(sizes.pop("body", "trellis"), KINDS[name])(**sizes)
    return Config(data=DataConfig(name), model=made, training=TrainingConfig(**options | training))


def tiny_data(name):
    """In the place of one of the package's datasets, something like it."""
    if name in ("ptb-word", "wikitext-2", "wikitext-103"):
        return tiny_text("words", tokens=2000, words=20)
    if KINDS[name] == "pairs":
        return tiny_pairs(300)
    if name in ("ptb-char", "python-library", "text"):
        return tiny_text("characters", tokens=2000, words=90)
    tasks = {"series": "regression", "adding": "regression", "copy-memory": "tokens", "music": "labels"}
    task = tasks.get(name, "classification")
    return tiny_sequences(task, items=300, steps=1020 if name == "copy-memory" else 40, channels=1)


def shrunk(config):
    """An experiment with its own options, but narrow and shallow, with small batches."""
    layers = min(config.model.num_layers, 4 if config.data.name != "copy-memory" else 10)
    small = {"embedding_size": 8, "output_size": 9, "aux_every": 2, "groups": [6, 6], "horizon": 5}
    small = {name: value for name, value in small.items() if getattr(config.model, name, None)}
    config.model = replace(config.model, parameters=None, hidden_size=12, num_layers=layers, **small)
    config.training.batch_size = 4 * config.training.accumulate
    return config
