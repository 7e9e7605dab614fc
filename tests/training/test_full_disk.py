import errno
import resource
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from test_resume import assert_equal_runs

from tiny import tiny_config, tiny_text
from trellisnet import TrainingConfig, TrellisClassifier
from trellisnet import files as writing
from trellisnet import fit as fit_model
from trellisnet.cli import main
from trellisnet.files import FullDiskError, append, replacing
from trellisnet.training import fit, tasks
from trellisnet.training.progress import Progress


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text())


@contextmanager
def limited(size):
    """The system refuses to let a file grow beyond a size."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def full_for(patch, name):
    """A disk that is full when a file of this name is written."""
    sync = writing.sync

    def refuse(path):
        if path.name.startswith(f".{name}."):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(path)

    patch.setattr(writing, "sync", refuse)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_the_errors_of_all_libraries_name_the_file(error, tmp_path):
    path = tmp_path / "a"
    path.write_text("old")

    def write():
        with replacing(path) as (file,):
            file.write_text("new")
            raise error

    with pytest.raises(FullDiskError, match=r"/a cannot be written: .*; what was there before is intact: free some"):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_other_errors_stay(tmp_path):
    def write():
        with replacing(tmp_path / "a"):
            raise PermissionError(errno.EACCES, "no")

    with pytest.raises(PermissionError):
        write()


def test_a_line_is_added_whole_or_not_at_all(tmp_path):
    path = tmp_path / "lines"
    append(path, "ä\n" * 100)
    with limited(400), pytest.raises(FullDiskError, match="lines cannot be written: File too large"):
        append(path, "x" * 200)
    assert path.read_text() == "ä\n" * 100


@pytest.mark.parametrize("name", ["model.safetensors", "checkpoint", "report.html", "result.json", "config.yaml"])
def test_a_run_says_how_to_go_on_and_goes_on(name, tmp_path, monkeypatch, capsys):
    config = tiny_config(epochs=1, batch_size=2)
    fit.train_new(config, "whole", tmp_path / "whole")
    if name == "checkpoint":
        (name,) = (path.name for path in (tmp_path / "whole" / "checkpoints").glob("*.safetensors"))
    monkeypatch.setattr("trellisnet.training.fit.resume", lambda folder, epochs: fit.train_new(config, "full", folder))
    with monkeypatch.context() as patch:
        full_for(patch, name)
        assert main(["train", "--resume", str(tmp_path / "full")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{name} cannot be written: No space left on device" in error
    if name == "config.yaml":
        assert "free some space and run the command again" in error
        return
    assert f"free some space and resume with: trellisnet train --resume {tmp_path / 'full'}" in error
    monkeypatch.undo()
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text())
    fit.resume(tmp_path / "full")
    assert_equal_runs(tmp_path / "whole", tmp_path / "full")


def test_the_best_model_stays_whole(tmp_path, monkeypatch):
    model, x = TrellisClassifier(2, 6, 3, 2), np.random.default_rng(0).standard_normal((30, 5, 2))
    best = tmp_path / "run" / "best" / "model.safetensors"
    saved = []

    def save_then_fill(model, folder, facts):
        if saved:
            with limited(1000):
                model.save_pretrained(folder)
        model.save_pretrained(folder)
        saved.append(best.read_bytes())

    monkeypatch.setattr("trellisnet.training.loop.save_model", save_then_fill)
    with pytest.raises(FullDiskError, match=r"model.safetensors cannot be written: File too large"):
        fit_model(model, (x, x[:, 0, 0] > 0), TrainingConfig(epochs=9, batch_size=8), tmp_path / "run")
    assert best.read_bytes() == saved[0]


def test_predictions_leave_no_half_file(tmp_path, monkeypatch, capsys):
    model, x = TrellisClassifier(2, 6, 3, 2), np.random.default_rng(0).standard_normal((30, 5, 2))
    fit_model(model, (x, x[:, 0, 0] > 0), TrainingConfig(epochs=1, batch_size=8), tmp_path / "run")
    np.save(tmp_path / "x.npy", x)
    for ending in (".csv", ".jsonl", ".parquet"):
        out = tmp_path / f"out{ending}"
        capsys.readouterr()
        with limited(200):
            assert (
                main(["predict", str(tmp_path / "run"), "--input", str(tmp_path / "x.npy"), "--output", str(out)]) == 2
            )
        error = capsys.readouterr().err
        assert f"{out} cannot be written: File too large" in error
        assert error.count("\n") == 1
        assert not out.exists()
