import pytest
import torch

from tiny import tiny_config, tiny_text
from trellisnet.training import fit, tasks, trackers
from trellisnet.training.progress import Progress


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text())


def read(folder):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulators.EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_shows_the_metrics_once(tmp_path):
    """Also after going on when all was done."""
    run = fit.train_new(tiny_config(tensorboard=True), "run", tmp_path / "run")
    shown = read(tmp_path / "run" / "tensorboard")
    losses = [(entry["step"], pytest.approx(entry["loss"])) for entry in run.metrics() if "loss" in entry]
    assert shown["training/loss"] == losses
    assert [step for step, _ in shown["valid/bits"]] == [entry["step"] for entry in run.metrics() if "valid" in entry]
    assert shown["best/test/bits"][0][1] == pytest.approx(run.metrics()[-1]["best"]["test"]["bits"])
    fit.resume(tmp_path / "run")
    assert read(tmp_path / "run" / "tensorboard") == shown


def test_tensorboard_shows_the_parts_of_the_loss(tmp_path):
    run = fit.train_new(tiny_config({"alpha": 1.0}, tensorboard=True), "run", tmp_path / "run")
    shown = read(tmp_path / "run" / "tensorboard")
    for name in ("main", "activation"):
        parts = [(entry["step"], pytest.approx(entry["parts"][name])) for entry in run.metrics() if "parts" in entry]
        assert shown[f"parts/{name}"] == parts


def test_what_was_written_after_a_checkpoint_is_not_there_twice(tmp_path, monkeypatch):
    """The only checkpoint is the first epoch's; the run is killed well into the second."""

    class Killed(BaseException):
        pass

    advance = Progress.advance

    def advance_or_die(self, at, *args):
        advance(self, at, *args)
        if at == 25:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "advance", advance_or_die)
        with pytest.raises(Killed):
            fit.train_new(tiny_config(tensorboard=True, log_every=1), "run", tmp_path / "run")
    assert len(read(tmp_path / "run" / "tensorboard")["training/loss"]) == 24
    run = fit.resume(tmp_path / "run")
    steps = [entry["step"] for entry in run.metrics() if "loss" in entry]
    assert steps == list(range(1, len(steps) + 1))
    assert [step for step, _ in read(tmp_path / "run" / "tensorboard")["training/loss"]] == steps


def test_without_the_package_nothing_is_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"trackers=tensorboard needs the tensorboard package, of the extra"):
        fit.train_new(tiny_config(tensorboard=True), "run", tmp_path / "run")
    assert not (tmp_path / "run").exists()
