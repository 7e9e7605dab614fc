"""Tasks: what is learned, one file per kind. A dataset names its kind in its attribute `task`."""

from __future__ import annotations

from typing import Any

from torch import nn

from trellisnet.data.checks import pick
from trellisnet.data.registry import load
from trellisnet.training.config import Config
from trellisnet.training.tasks.base import Task
from trellisnet.training.tasks.classification import ClassificationTask
from trellisnet.training.tasks.language import LanguageTask
from trellisnet.training.tasks.regression import RegressionTask
from trellisnet.training.tasks.tokens import TokenTask

TASKS: dict[str, type[Task]] = {
    "classification": ClassificationTask,
    "language": LanguageTask,
    "regression": RegressionTask,
    "tokens": TokenTask,
}


def make_task(config: Config, data: Any = None, model: nn.Module | None = None) -> Task:
    """The task of a configuration.

    Args:
        config: what was asked for.
        data: a `TextData` or `SequenceData`; default: load what the configuration names.
        model: default: build what the configuration describes.
    """
    if data is None:
        data = load(config.data.name, root=config.data.root, **config.data.options)
    return pick("task", data.task, TASKS)(config, data, model)
