"""Run folders: the files of one experiment.

config.yaml       all values; null means derived from other values
metrics.jsonl     one line per `log_every` steps and one per evaluation; independent of the machine's speed
task.json         the task, its metrics, the facts about the data that prediction needs, and a record of config.yaml
log.txt           printed messages
environment.json  versions, machine, command, git state
checkpoints/      the last two checkpoints, for resuming
best/, last/      the model as `save_pretrained` writes it: best by validation, and after the last epoch; with a copy of
                  task.json, so that such a folder alone is enough for predictions
checksums.json    those of task, metrics, result and environment, at the end; best/ and last/ have their own
trackers.json     what finds the records of the trackers again, and how many entries they have
tensorboard/      the metrics for TensorBoard, wandb/ those for Weights & Biases, if they are among the trackers
result.json       metrics of the best model, at the end
report.html       curves, results, samples, at the end
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from trellisnet.checksums import check_intact, record
from trellisnet.files import TEMPORARY, append, remove_leftovers, replacing
from trellisnet.training.config import Config
from trellisnet.training.events import Events
from trellisnet.training.reading import VERSION, check_unchanged, flat, read_run
from trellisnet.training.trackers import TRACKERS

CONFIG, METRICS, RESULT, TASK, TRACKED = "config.yaml", "metrics.jsonl", "result.json", "task.json", "trackers.json"
ENVIRONMENT = "environment.json"


class Run:
    """A run's folder. A lock ensures that only one process writes to it."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = folder, config
        self.checkpoints = folder / "checkpoints"
        self._lock: FileLock | None = None
        self.watch: Callable[[dict[str, Any]], object] | None = None  # called with every entry of metrics.jsonl
        self._events: dict[str, Events] = {}  # by the name of the tracker

    @classmethod
    def create(cls, config: Config, name: str, folder: Path | None = None) -> Run:
        """Create a new run folder and lock it.

        Args:
            config: the configuration, which is written to the folder.
            name: for the first free of `runs/NAME-1`, `runs/NAME-2`, ..., if no folder is given.
            folder: new or empty; a ValueError if it is in use.
        """
        if folder is not None:
            if folder.exists() and (not folder.is_dir() or any(map(_holds_something, folder.iterdir()))):
                raise ValueError(
                    f"run folder {folder} is in use: choose another, or resume it with `train --resume {folder}`"
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
        run.write_config(None)
        run.write_json(ENVIRONMENT, environment())
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Open the folder of an existing run; a ValueError if its config.yaml is damaged or has changed."""
        path = folder / CONFIG
        if not path.is_file():
            raise FileNotFoundError(f"{folder} is not a run: {path} not found")
        run = cls(folder, read_run(path))
        check_intact(folder)
        if (recorded := (run.read_json(TASK) or {}).get("config")) is not None:
            check_unchanged(path, recorded)
        return run

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder holds a run."""
        return (folder / CONFIG).is_file()

    def model_folder(self, which: str) -> Path:
        """The folder of the model "best" or "last"; a FileNotFoundError if it is not saved yet."""
        folder = self.folder / which
        if not folder.is_dir():
            raise FileNotFoundError(f"{self.folder} has no model {which!r} yet: train it first")
        return folder

    def acquire(self) -> None:
        """Lock the folder; a ValueError if another process holds the lock."""
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
        """Lock the folder during the context; an error or an interruption releases the lock too."""
        if self._lock is None:
            self.acquire()
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Release the lock and complete the records of the trackers."""
        for events in self._events.values():
            events.close()
        self._events = {}
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def log(self, text: str) -> None:
        """Add a line to log.txt."""
        append(self.folder / "log.txt", f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")

    def add_metrics(self, entry: dict[str, Any]) -> None:
        """Add a line to metrics.jsonl."""
        append(self.folder / METRICS, json.dumps(entry) + "\n")
        for events in self._events.values():
            events.add(entry)
        self._write_tracked()
        if self.watch is not None:
            self.watch(entry)

    def track(self, say: Callable[[str], object]) -> None:
        """Also send the metrics to the configuration's trackers, existing and future ones; `say` reports failures."""
        training, known = self.config.training, self.read_json(TRACKED) or {}
        name, values, entries = self.folder.resolve().name, flat(self.config.to_dict()), self.metrics()
        for tracker in dict.fromkeys((*training.trackers, *["tensorboard"] * training.tensorboard)):
            before = known.get(tracker)
            self._events[tracker] = Events(TRACKERS[tracker], name, self.folder, values, entries, before, say)
        self._write_tracked()

    def _write_tracked(self) -> None:
        if self._events:
            self.write_json(TRACKED, {name: events.known for name, events in self._events.items()})

    def metrics(self) -> list[dict[str, Any]]:
        """The entries of metrics.jsonl; an incomplete last line is ignored."""
        path = self.folder / METRICS
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        try:
            return [json.loads(line) for line in lines if line.endswith("\n")]
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error}") from None

    def keep_metrics(self, count: int) -> None:
        """Keep the first n lines of metrics.jsonl; later ones were written after the checkpoint that is resumed."""
        entries = self.metrics()
        if len(entries) < count:
            raise ValueError(f"{self.folder / METRICS} must have at least {count} lines, got {len(entries)}")
        lines = [json.dumps(entry) + "\n" for entry in entries[:count]]
        with replacing(self.folder / METRICS) as (file,):
            file.write_text("".join(lines), encoding="utf-8")

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file in the folder."""
        write_json(self.folder / name, content)

    def seal(self) -> None:
        """Record the checksums of what will not change any more; config.yaml is compared with its record."""
        record(self.folder, (TASK, METRICS, RESULT, ENVIRONMENT))

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Read a JSON file of the folder; None if it does not exist, a ValueError if it is damaged."""
        return read_json(self.folder / name)

    def write_config(self, facts: dict[str, Any] | None) -> None:
        """Write config.yaml and, if given, task.json with the record of it."""
        import yaml  # noqa: PLC0415

        content = {**self.config.to_dict(), "version": VERSION}  # last, so that a truncated file has no version
        texts = {CONFIG: yaml.safe_dump(content, sort_keys=False, allow_unicode=True)}
        if facts is not None:
            texts[TASK] = json.dumps(facts, indent=1) + "\n"
        with replacing(*(self.folder / name for name in texts)) as files:
            for file, text in zip(files, texts.values(), strict=True):
                file.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file: all of it or nothing."""
    with replacing(path) as (file,):
        file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON file; None if it does not exist, a ValueError if it is damaged."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: expected a mapping, got {type(content).__name__}")
    return content


def _holds_something(path: Path) -> bool:
    """Whether a path is more than the leftovers of a run that was killed before it started."""
    leftover = path.name == ".lock" or path.name.endswith(TEMPORARY) or (path.is_dir() and not any(path.iterdir()))
    return not leftover


def environment() -> dict[str, Any]:
    """Command, date, versions and machine, for the record of a result."""
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
        "launch": launch_id(),
    }


def launch_id() -> str | None:
    """What all starts of processes by one torchrun have in common; None if torchrun did not start this process."""
    job = os.environ.get("TORCHELASTIC_RUN_ID")
    if job != "none":
        return job
    return f"{platform.node()}, process {os.getppid()}"  # torchrun on one node without a rendezvous: it is the parent


def _git_state() -> str | None:
    """The commit of the code, marked if there are changes; None outside a repository."""
    folder = Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()
