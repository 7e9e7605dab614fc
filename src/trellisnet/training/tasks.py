"""The task of a configuration."""

from __future__ import annotations

from trellisnet.data.registry import load
from trellisnet.data.text.data import TextData
from trellisnet.training.config import Config
from trellisnet.training.language_task import LanguageTask
from trellisnet.training.sequence_tasks import ClassificationTask, RegressionTask, TokenTask
from trellisnet.training.task import Task

TASKS: dict[str, type[ClassificationTask | RegressionTask | TokenTask]] = {
    "classification": ClassificationTask,
    "regression": RegressionTask,
    "tokens": TokenTask,
}


def make_task(config: Config) -> Task:
    """Load the data of a configuration and build its model."""
    data = load(config.data.name, root=config.data.root, **config.data.options)
    return LanguageTask(config, data) if isinstance(data, TextData) else TASKS[data.task](config, data)
