"""Trackers by name: TensorBoard, Weights & Biases, MLflow and Trackio. Each library is imported when it is used.

Where the records go is the library's own matter, and so are its environment variables (`WANDB_MODE=offline`,
`MLFLOW_TRACKING_URI`, `TRACKIO_DIR`, ...). The project is `trellisnet` unless such a variable names another.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trellisnet.core.checks import one_of

PROJECT = "trellisnet"
LONGEST = 500  # characters of a parameter that every MLflow server takes


class TensorBoard:
    """A folder of TensorBoard events in the run's folder.

    Events cannot be removed, and a resumed run starts from a checkpoint that may be older than the last events: the
    folder is written again.
    """

    replays = True

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any], identity: str | None) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter  # noqa: PLC0415

        self.identity = "tensorboard"
        shutil.rmtree(folder / self.identity, ignore_errors=True)
        self._writer = SummaryWriter(folder / self.identity)

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases, with its files in the run's folder."""

    replays = False

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any], identity: str | None) -> None:
        import wandb  # noqa: PLC0415

        self.identity = identity or uuid.uuid4().hex
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self._run = wandb.init(
            project=project, name=name, id=self.identity, resume="allow", dir=str(folder), config=dict(config)
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """A run of an MLflow experiment."""

    replays = False

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any], identity: str | None) -> None:
        from mlflow.tracking import MlflowClient  # noqa: PLC0415

        self._client = MlflowClient()
        if identity is not None:
            self.identity = identity
            self._client.update_run(identity, status="RUNNING")
            return
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(title)
        number = self._client.create_experiment(title) if experiment is None else experiment.experiment_id
        self.identity = self._client.create_run(number, run_name=name).info.run_id
        for key, value in config.items():
            self._client.log_param(self.identity, key, str(value)[:LONGEST])

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._client.log_metric(self.identity, name, value, step=step)

    def close(self) -> None:
        self._client.set_terminated(self.identity)


class Trackio:
    """A run of a Trackio project; its name ends with letters of its own, because a name finds a run again."""

    replays = False

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any], identity: str | None) -> None:
        import trackio  # noqa: PLC0415

        self.identity = identity or f"{name}-{uuid.uuid4().hex[:8]}"
        options: dict[str, Any] = {"resume": "allow", "config": dict(config), "embed": False}
        self._run = trackio.init(PROJECT, name=self.identity, auto_log_gpu=False, auto_log_cpu=False, **options)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


# by the name of their package, which is that of the extra too
TRACKERS: dict[str, Any] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
    "trackio": Trackio,
}


def check_tracker(option: str, name: str) -> str:
    """Return the name of a tracker.

    Raises:
        ValueError: there is no such tracker.
        ImportError: its package is not installed.
    """
    one_of(option, name, TRACKERS)
    if find_spec(name) is None:
        raise ImportError(f"{option}={name} needs the {name} package, of the extra '{name}'")
    return name
