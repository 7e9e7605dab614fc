import csv

import numpy as np
import pytest
import torch

from trellisnet import TrainingConfig, TrellisClassifier, fit, predict
from trellisnet.cli import main
from trellisnet.training.progress import Progress

X = np.random.default_rng(0).standard_normal((30, 5, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    torch.set_default_dtype(torch.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "say", lambda self, text: self.log(text))
        model = TrellisClassifier(2, 6, 3, 2)
        labels = np.where(X[:, 0, 0] > 0, "up", "down")
        return fit(model, (X, labels), TrainingConfig(epochs=1, batch_size=8), tmp_path_factory.mktemp("fit") / "run")


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("model", ["best", "last"])
def test_a_file_of_labels(run, model, tmp_path, capsys):
    np.save(tmp_path / "new.npy", X[:7])
    out = tmp_path / "labels.csv"
    arguments = ["--input", str(tmp_path / "new.npy"), "--output", str(out), "--model", model]
    assert main(["predict", str(run.folder), *arguments]) == 0
    assert f"7 rows: {out}" in capsys.readouterr().out
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = predict(run, X[:7], which=model)
    assert [row["label"] for row in rows] == expected["label"]
    assert [float(row["p(up)"]) for row in rows] == pytest.approx(expected["p(up)"], abs=1e-6)


def test_mistakes_take_one_line_and_write_nothing(run, tmp_path, capsys):
    np.save(tmp_path / "new.npy", X)
    np.save(tmp_path / "wide.npy", np.zeros((3, 4, 5)))
    (tmp_path / "empty.npy").touch()
    (tmp_path / "taken.csv").write_text("mine")
    folder = str(run.folder)
    mistakes = {
        ("nowhere", "new.npy", "out.csv"): "nowhere is not a run",
        (folder, "new.npy", "taken.csv"): "taken.csv exists already",
        (folder, "new.npy", "out.xls"): "must end in .csv, .parquet, .jsonl",
        (folder, "new.npy", "no/out.csv"): "does not exist",
        (folder, "missing.npy", "out.csv"): "missing.npy",
        (folder, "empty.npy", "out.csv"): "empty.npy: is empty",
        (folder, "wide.npy", "out.csv"): "must have 2 channels, as what was trained on, got 5",
        (folder, "new.npy", "out.csv", "--per", "line"): "per belongs to language models",
    }
    before = sorted(tmp_path.iterdir())
    for (where, source, target, *flags), message in mistakes.items():
        arguments = ["--input", str(tmp_path / source), "--output", str(tmp_path / target), *flags]
        assert main(["predict", where, *arguments]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "taken.csv").read_text() == "mine"
