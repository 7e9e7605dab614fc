import pytest
import torch

from tiny import tiny_config, tiny_text
from trellisnet.training import checks, fit, tasks
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
    """Also after going on: what was written after the checkpoint is not there twice."""
    run = fit.train_new(tiny_config(tensorboard=True), "run", tmp_path / "run")
    shown = read(tmp_path / "run" / "tensorboard")
    losses = [(entry["step"], pytest.approx(entry["loss"])) for entry in run.metrics() if "loss" in entry]
    assert shown["training/loss"] == losses
    assert [step for step, _ in shown["valid/bits"]] == [entry["step"] for entry in run.metrics() if "valid" in entry]
    assert shown["best/test/bits"][0][1] == pytest.approx(run.metrics()[-1]["best"]["test"]["bits"])
    fit.resume(tmp_path / "run")
    assert read(tmp_path / "run" / "tensorboard") == shown


def test_without_the_package_nothing_is_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"training.tensorboard needs .* pip install 'trellisnet\[tensorboard\]'"):
        fit.train_new(tiny_config(tensorboard=True), "run", tmp_path / "run")
    assert not (tmp_path / "run").exists()
