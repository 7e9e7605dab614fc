"""Tasks, one file per kind. The attribute `task` of a dataset names its kind."""

from __future__ import annotations

from typing import Any

from torch import nn

from trellisnet.data.checks import pick
from trellisnet.data.registry import load
from trellisnet.data.sequences.data import SequenceData
from trellisnet.data.text.data import TextData
from trellisnet.data.translation.data import PairData
from trellisnet.training.config import Config
from trellisnet.training.given import GIVEN
from trellisnet.training.tasks.base import Task
from trellisnet.training.tasks.classification import ClassificationTask
from trellisnet.training.tasks.labels import LabelsTask
from trellisnet.training.tasks.language import LanguageTask
from trellisnet.training.tasks.regression import RegressionTask
from trellisnet.training.tasks.tagging import TaggingTask
from trellisnet.training.tasks.tokens import TokenTask
from trellisnet.training.tasks.translation import TranslationTask

TASKS: dict[str, type[Task]] = {
    "classification": ClassificationTask,
    "labels": LabelsTask,
    "language": LanguageTask,
    "regression": RegressionTask,
    "tagging": TaggingTask,
    "tokens": TokenTask,
    "translation": TranslationTask,
}


def make_task(config: Config, data: Any = None, model: nn.Module | None = None) -> Task:
    """Make the task of a configuration.

    Args:
        config: the configuration of the experiment.
        data: a `TextData`, `SequenceData` or `PairData`; default: load the dataset of the configuration.
        model: default: build the model of the configuration.
    """
    data = load_data(config) if data is None else data
    return task_of(data)(config, data, model)


def load_data(config: Config) -> TextData | SequenceData | PairData:
    """Load the dataset of a configuration; a ValueError if the data was passed from Python."""
    if config.data.name == GIVEN:
        raise ValueError("the data was passed from Python and cannot be loaded: use trellisnet.fit")
    return load(config.data.name, root=config.data.root, **config.data.options)


def task_of(data: TextData | SequenceData | PairData) -> type[Task]:
    """The class of the task for a dataset."""
    return pick("task", data.task, TASKS)
