"""Run folders: one experiment each, with everything that is known of it.

config.yaml       all values; null is what follows from others
metrics.jsonl     one line per `log_every` steps, and one per epoch; nothing that depends on the machine's speed
task.json         what is learned, the metrics, and what prediction needs of the data
log.txt           what was printed
environment.json  versions, machine, command, git state
checkpoints/      the last two, to go on from
best/, last/      the model as `save_pretrained` writes it: best by validation, and after the last epoch
tensorboard/      the metrics again, if asked for
report.html       curves, results, samples; at the end
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from trellisnet.files import TEMPORARY, remove_leftovers, replacing
from trellisnet.training.config import Config
from trellisnet.training.events import Events
from trellisnet.training.reading import VERSION, read_run

CONFIG, METRICS, RESULT, TASK = "config.yaml", "metrics.jsonl", "result.json", "task.json"


class Run:
    """A run's folder. Only one process of one program writes into it at a time."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = folder, config
        self.checkpoints = folder / "checkpoints"
        self._lock: FileLock | None = None
        self._events: Events | None = None

    @classmethod
    def create(cls, config: Config, name: str, folder: Path | None = None) -> Run:
        """Make a new folder: the one given, or the first free of `runs/NAME-1`, `runs/NAME-2`, ..."""
        if folder is not None:
            if folder.exists() and (not folder.is_dir() or any(map(_holds_something, folder.iterdir()))):
                raise ValueError(
                    f"run folder {folder} is in use: choose another, or go on with `train --resume {folder}`"
                )
            folder.mkdir(parents=True, exist_ok=True)
        number = 1
        while folder is None:
            candidate = Path("runs") / f"{name}-{number}"
            try:
                candidate.mkdir(parents=True)
                folder = candidate
            except FileExistsError:
                number += 1
        run = cls(folder, config)
        run.acquire()
        run._write_yaml(CONFIG, {**config.to_dict(), "version": VERSION})  # last, so that a cut file has none
        run.write_json("environment.json", _environment())
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """A folder that a run was made in."""
        path = folder / CONFIG
        if not path.is_file():
            raise FileNotFoundError(f"{folder} is not a run: {path} not found")
        return cls(folder, read_run(path))

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a run was begun in a folder."""
        return (folder / CONFIG).is_file()

    def acquire(self) -> None:
        """Keep all others from writing here until this process ends."""
        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise ValueError(f"run folder {self.folder} is in use by another process") from None
        self._lock = lock
        self.checkpoints.mkdir(exist_ok=True)
        remove_leftovers(self.folder, self.checkpoints, self.folder / "best", self.folder / "last")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep all others from writing here; an error or an interruption lets them again."""
        if self._lock is None:
            self.acquire()
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Let others write."""
        if self._events is not None:
            self._events.close()
            self._events = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def log(self, text: str) -> None:
        """Add a line to log.txt."""
        with (self.folder / "log.txt").open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")

    def add_metrics(self, entry: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        with (self.folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        if self._events is not None:
            self._events.add(entry)

    def write_events(self) -> None:
        """Write the metrics for TensorBoard too, those so far and those to come."""
        self._events = Events(self.folder / "tensorboard", self.metrics())

    def metrics(self) -> list[dict[str, Any]]:
        """All lines of metrics.jsonl that are whole."""
        path = self.folder / METRICS
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        try:
            return [json.loads(line) for line in lines if line.endswith("\n")]
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error}") from None

    def keep_metrics(self, count: int) -> None:
        """Drop all but the first lines: those that were written after the checkpoint a run goes on from."""
        entries = self.metrics()
        if len(entries) < count:
            raise ValueError(f"{self.folder / METRICS} must have at least {count} lines, got {len(entries)}")
        lines = [json.dumps(entry) + "\n" for entry in entries[:count]]
        with replacing(self.folder / METRICS) as (file,):
            file.write_text("".join(lines), encoding="utf-8")

    def write_json(self, name: str, content: Any) -> None:
        """A file of the folder as JSON."""
        with replacing(self.folder / name) as (file,):
            file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def read_json(self, name: str) -> dict[str, Any] | None:
        """What `write_json` wrote; None if the run has not written it yet."""
        path = self.folder / name
        if not path.is_file():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error}") from None
        if not isinstance(content, dict):
            raise ValueError(f"{path} is damaged: expected a mapping, got {type(content).__name__}")
        return content

    def _write_yaml(self, name: str, content: Any) -> None:
        import yaml  # noqa: PLC0415

        with replacing(self.folder / name) as (file,):
            file.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")


def _holds_something(path: Path) -> bool:
    """Whether a path in a run's folder is more than what a run leaves that was killed before it began."""
    begun = path.name == ".lock" or path.name.endswith(TEMPORARY) or (path.is_dir() and not any(path.iterdir()))
    return not begun


def _environment() -> dict[str, Any]:
    import numpy  # noqa: PLC0415
    import torch  # noqa: PLC0415

    from trellisnet import __version__  # noqa: PLC0415

    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "started": time.strftime("%Y-%m-%d %H:%M:%S"),
        "python": platform.python_version(),
        "trellisnet": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": platform.platform(),
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "git": _git_state(),
    }


def _git_state() -> str | None:
    """The commit of the code, and whether there are changes; None if it is not in a repository."""
    folder = Path(__file__).parent
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip()
