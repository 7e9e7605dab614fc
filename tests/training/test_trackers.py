"""What the trackers receive: with stand-ins for their packages, and with the packages where they are installed."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest
import torch

from tiny import tiny_config, tiny_text
from trellisnet.cli import main
from trellisnet.training import fit, tasks, trackers
from trellisnet.training.events import Events
from trellisnet.training.progress import Progress

ENTRIES = [{"step": 3, "epoch": 0, "loss": 2.0}, {"step": 6, "epoch": 1, "valid": {"bits": 1.5}}]


class Book:
    """A tracker that keeps all records in a dictionary."""

    replays = False
    records: ClassVar[dict] = {}

    def __init__(self, name, folder, config, identity):
        self.identity = identity or f"{name}-{len(self.records)}"
        self.records.setdefault(self.identity, {"config": config, "lines": []})

    def log(self, values, step):
        self.records[self.identity]["lines"].append((step, values))

    def close(self):
        self.records[self.identity]["closed"] = True


@pytest.fixture
def book(monkeypatch):
    monkeypatch.setattr(Book, "records", {})
    monkeypatch.setitem(trackers.TRACKERS, "book", Book)
    monkeypatch.setattr(trackers, "find_spec", lambda name: True)
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text())
    return Book.records


def test_a_run_is_one_record_even_if_it_was_killed(book, tmp_path, monkeypatch):
    """The only checkpoint is that of the first epoch; entries after it are sent once."""

    class Killed(BaseException):
        pass

    advance = Progress.advance

    def advance_or_die(self, at, *args):
        advance(self, at, *args)
        if at == 25:
            raise Killed

    config = tiny_config(trackers=["book"], log_every=1)
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "advance", advance_or_die)
        with pytest.raises(Killed):
            fit.train_new(config, "run", tmp_path / "run")
    run = fit.resume(tmp_path / "run")
    ((identity, record),) = book.items()
    assert identity == "run-0"
    assert record["config"]["training.log_every"] == 1
    assert record["closed"]
    losses = [(step, values["training/loss"]) for step, values in record["lines"] if "training/loss" in values]
    assert losses == [(entry["step"], entry["loss"]) for entry in run.metrics() if "loss" in entry]
    assert len(record["lines"]) == len(run.metrics())
    assert run.read_json("trackers.json") == {"book": {"identity": "run-0", "entries": len(run.metrics())}}


def test_a_tracker_that_fails_does_not_end_the_run(tmp_path):
    said = []

    class Broken(Book):
        def log(self, values, step):
            raise ConnectionError("no\nroute")

    events = Events(Broken, "run", tmp_path, {}, ENTRIES, None, said.append)
    events.close()
    assert said == ["Broken failed, and gets no more metrics until the run is resumed: ConnectionError: no route"]
    assert events.known["entries"] == 0
    later = Events(Book, "run", tmp_path, {}, ENTRIES, events.known, said.append)
    assert later.known == {"identity": events.known["identity"], "entries": 2}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wandv", "training.trackers must be one of tensorboard, wandb, mlflow, trackio, got 'wandv'"),
        ("mlflow", "training.trackers=mlflow needs the mlflow package, of the extra 'mlflow'"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(name, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    assert main(["train", "demo", "--training.trackers", name]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message.replace("'", "") in error.replace("'", "")
    assert list(tmp_path.iterdir()) == []


def stand_in(monkeypatch, name, **content):
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    module.__dict__.update(content)
    monkeypatch.setitem(sys.modules, name, module)


def send(name, tmp_path, known=None, entries=ENTRIES):
    events = Events(trackers.TRACKERS[name], "run", tmp_path, {"training.seed": 1}, entries, known, pytest.fail)
    events.close()
    return events.known


def test_what_wandb_and_trackio_are_called_with(tmp_path, monkeypatch):
    calls = []

    def init(*args, **options):
        calls.append(("init", args, options))
        log = lambda values, step: calls.append(("log", values, step))  # noqa: E731
        return SimpleNamespace(log=log, finish=lambda: calls.append(("finish",)))

    for name in ("wandb", "trackio"):
        calls.clear()
        stand_in(monkeypatch, name, init=init)
        known = send(name, tmp_path)
        send(name, tmp_path, known, [*ENTRIES, {"step": 9, "loss": 1.0}])
        first, second = (call for call in calls if call[0] == "init")
        for _, args, options in (first, second):
            assert "trellisnet" in (*args, options.get("project"))
            assert options["resume"] == "allow"
            assert options["config"] == {"training.seed": 1}
            assert known["identity"] in (options.get("id"), options["name"])
        logged = [call[1:] for call in calls if call[0] == "log"]
        assert logged == [({"training/loss": 2.0}, 3), ({"valid/bits": 1.5}, 6), ({"training/loss": 1.0}, 9)]
        assert calls[-1] == ("finish",)


@pytest.mark.filterwarnings("ignore")
def test_mlflow_in_a_local_store(tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking", reason="the extra 'mlflow' is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    known = send("mlflow", tmp_path)
    assert send("mlflow", tmp_path, known, [*ENTRIES, {"step": 9, "loss": 1.0}])["identity"] == known["identity"]
    client = tracking.MlflowClient()
    found = client.get_run(known["identity"])
    assert found.info.status == "FINISHED"
    assert found.data.params == {"training.seed": "1"}
    history = client.get_metric_history(known["identity"], "training/loss")
    assert [(each.step, each.value) for each in history] == [(3, 2.0), (9, 1.0)]


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="the extra 'wandb' is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    known = send("wandb", tmp_path)
    assert list((tmp_path / "wandb").rglob(f"*{known['identity']}.wandb"))


@pytest.mark.filterwarnings("ignore")
def test_trackio_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    trackio = pytest.importorskip("trackio", reason="the extra 'trackio' is not installed")
    known = send("trackio", tmp_path)
    (run,) = [run for run in trackio.Api().runs("trellisnet") if run.name == known["identity"]]
    assert run.name == known["identity"]
