"""Tagging, from tables and arrays to labels of new sequences."""

import csv
import json
import shutil

import numpy as np
import pytest
import torch

from tiny import tiny_config, tiny_sequences
from trellisnet import SequenceTagger, TrainingConfig, fit, predict
from trellisnet.baselines.rnn import GruBody
from trellisnet.cli import main
from trellisnet.data import from_arrays, load
from trellisnet.training.progress import Progress
from trellisnet.training.tasks import make_task

OPTIONS = {"name": "series", "task": "tagging", "values": ["x"], "series": "id", "label": "sign"}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))


def write(path, series=30, label=None, extra=()):
    """Series of 3 to 9 steps; the label of a step is the sign of its value."""
    generator = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "x", "sign"])
        for number in range(series):
            for _ in range(3 + number % 7):
                value = generator.normal()
                table.writerow([f"s{number}", value, ("plus" if value > 0 else "minus") if label is None else label])
        table.writerows(extra)
    return path


def slow_metrics(pairs, classes):
    """Of pairs (predicted, target) of all steps."""
    shares = []
    for label in range(classes):
        right = sum(p == t == label for p, t in pairs)
        predicted, there = sum(p == label for p, _ in pairs), sum(t == label for _, t in pairs)
        if predicted or there:
            precision = right / predicted if predicted else 0.0
            recall = right / there if there else 0.0
            shares.append(2 * precision * recall / (precision + recall) if right else 0.0)
    return sum(p == t for p, t in pairs) / len(pairs), sum(shares) / len(shares)


@pytest.mark.parametrize("ragged", [False, True])
def test_metrics_count_steps(ragged):
    task = make_task(tiny_config(text=False, model={"bidirectional": True}), tiny_sequences("tagging", ragged=ragged))
    metrics = task.evaluate_alone("valid")
    pairs, losses = [], []
    for batch in task.data.batches("valid", 1):
        length = batch.inputs.shape[1] if batch.lengths is None else int(batch.lengths[0])
        scores = task.model.eval()(batch.inputs[:, :length]).prediction[0].detach().double()
        for t in range(length):
            target = int(batch.targets[0, t])
            pairs.append((int(scores[t].argmax()), target))
            losses.append(float(torch.log(torch.exp(scores[t]).sum()) - scores[t, target]))
    accuracy, macro_f1 = slow_metrics(pairs, 3)
    assert metrics["accuracy"] == pytest.approx(accuracy, abs=1e-12)
    assert metrics["macro_f1"] == pytest.approx(macro_f1, abs=1e-12)
    assert metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    counts = task.shown()["confusion"]["counts"]
    expected = sum(9 if batch.lengths is None else int(batch.lengths[0]) for batch in task.data.batches("test", 1))
    assert np.sum(counts) == expected


def test_a_table_by_command(tmp_path, capsys):
    path = write(tmp_path / "signs.csv")
    flags = ["--data.options.path", str(path), "--data.options.values", "x", "--data.options.series", "id"]
    flags += ["--data.options.label", "sign", "--model.hidden_size", "8", "--training.batch_size", "4", "--to"]
    run = tmp_path / "run"
    assert main(["train", "my-tags", *flags, str(run), "--training.epochs", "8"]) == 0
    assert main(["train", "--resume", str(run), "--training.epochs", "15"]) == 0
    metrics = json.loads((run / "result.json").read_text())["metrics"]
    assert set(metrics["test"]) == {"accuracy", "macro_f1", "loss"}
    assert metrics["valid"]["accuracy"] > 0.8
    shutil.copytree(run / "best", tmp_path / "copied")
    assert main(["predict", str(tmp_path / "copied"), "--input", str(path), "--output", str(tmp_path / "out.csv")]) == 0
    with (tmp_path / "out.csv").open() as found, path.open() as given:
        rows, truth = list(csv.DictReader(found)), list(csv.DictReader(given))
    assert list(rows[0]) == ["series", "step", "label", "p(minus)", "p(plus)"]
    assert [row["series"] for row in rows] == [row["id"] for row in truth]
    assert np.mean([row["label"] == other["sign"] for row, other in zip(rows, truth, strict=True)]) > 0.8
    assert float(rows[0]["p(minus)"]) + float(rows[0]["p(plus)"]) == pytest.approx(1)
    capsys.readouterr()
    bad = write(tmp_path / "bad.csv", extra=[["new", 1.0, ""], ["new", 2.0, "zero"]])
    assert main(["predict", str(run), "--input", str(bad), "--output", str(tmp_path / "no.csv")]) == 2
    line = len(bad.read_text().splitlines())
    message = f"column 'sign', line {line}: label 'zero' is not one of the training: minus, plus"
    assert message in capsys.readouterr().err
    unlabelled = tmp_path / "unlabelled.csv"
    unlabelled.write_text("id,x\na,1.5\na,-1.5\n")
    assert len(predict(run, unlabelled)["label"]) == 2
    assert main(["evaluate", str(run), "--backtest", "2"]) == 2
    assert "backtest belongs to forecasting, and the task is tagging" in capsys.readouterr().err


def test_items_of_a_table(tmp_path):
    data = load(**OPTIONS, path=write(tmp_path / "signs.csv"), standardise=False)
    assert (data.task, data.labels, data.output_size) == ("tagging", ("minus", "plus"), 2)
    for batch in data.batches("train", 5):
        for i, length in enumerate(batch.lengths.tolist()):
            assert torch.equal(batch.targets[i, :length] == 1, batch.inputs[i, :length, 0] > 0)
            assert not batch.targets[i, length:].any()


def test_items_of_numpy_files(tmp_path):
    values = np.random.default_rng(0).normal(size=(20, 6, 2))
    np.savez(tmp_path / "even.npz", values=values, label=(values[..., 0] > 0).astype(int))
    flat, lengths = values.reshape(120, 2), np.array([2, 10] * 10)
    np.savez(tmp_path / "uneven.npz", values=flat, lengths=lengths, label=np.where(flat[:, 0] > 0, "b", "a"))
    for name in ("even", "uneven"):
        data = load("series", path=tmp_path / f"{name}.npz", task="tagging", standardise=False)
        batch = next(iter(data.batches("train", 4)))
        for i in range(4):
            length = 6 if batch.lengths is None else int(batch.lengths[i])
            assert torch.equal(batch.targets[i, :length] == 1, batch.inputs[i, :length, 0] > 0)
    np.savez(tmp_path / "wrong.npz", values=values, label=np.zeros(20, int))
    with pytest.raises(ValueError, match=r"'label' must have the shape \(20, 6\), a label per step, got shape \(20,\)"):
        load("series", path=tmp_path / "wrong.npz", task="tagging")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"label": "same"}, "the label must have two values or more, got 'same' at every step"),
        ({"extra": [["z", 1.0, ""]]}, "column 'sign', line .*: must not be empty"),
    ],
)
def test_bad_labels(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        load(**OPTIONS, path=write(tmp_path / "signs.csv", **content))


def test_bad_options(tmp_path):
    path = write(tmp_path / "signs.csv")
    with pytest.raises(ValueError, match="must have a column 'kind', got 'id', 'x', 'sign'"):
        load(**{**OPTIONS, "label": "kind"}, path=path)
    with pytest.raises(ValueError, match=r"label must name columns of .* for tagging, got None"):
        load(**{**OPTIONS, "label": None}, path=path)
    with pytest.raises(
        ValueError, match=r"must be the same in a whole series, .*; labels that change have the task tagging"
    ):
        load(**{**OPTIONS, "task": "classification"}, path=path)
    path.write_text("id,x,sign\n" + "".join(f"s{i},{i},{'ab'[i % 2]}\ns{i},0,{'ab'[i % 2]}\n" for i in range(20)))
    with pytest.raises(ValueError, match="the same at all steps of every series, which is the task classification"):
        load(**OPTIONS, path=path)
    path.write_text("id,x,sign,t\n" + "".join(f"s{i},{t},{'ab'[t % 2]},{t}\n" for i in range(9) for t in (0, 1, 2, 4)))
    with pytest.raises(ValueError, match="a gap follows, and steps that are filled have no label"):
        load(**OPTIONS, path=path, time="t", fill="zero")


@pytest.mark.parametrize("form", ["even", "uneven", "texts"])
def test_arrays(form, tmp_path):
    generator = np.random.default_rng(0)
    if form == "even":
        x = generator.normal(size=(20, 6, 2))
        y = (x[..., 0] > 0).astype(int)
    else:
        x = [generator.normal(size=(3 + i % 4, 2)) for i in range(20)]
        y = [(row[:, 0] > 0).astype(int) for row in x]
        y = [np.where(row, "up", "down") for row in y] if form == "texts" else y
    model = SequenceTagger(GruBody(2, hidden_size=4), 2, bidirectional=True)
    result = fit(model, (x, y), TrainingConfig(epochs=1, batch_size=4), tmp_path / "run", valid=(x, y))
    found = predict(result, x[:2])
    assert found["step"] == [*range(1, len(x[0]) + 1), *range(1, len(x[1]) + 1)]
    assert set(found["label"]) <= ({"up", "down"} if form == "texts" else {"0", "1"})
    pairs = list(zip(predict(result, x)["label"], np.concatenate(list(y)).astype(str).tolist(), strict=True))
    assert result.metrics["valid"]["accuracy"] == pytest.approx(np.mean([p == t for p, t in pairs]))


def test_splits_of_arrays_are_alike():
    x = np.zeros((10, 6, 2))
    y = np.arange(60).reshape(10, 6) % 3
    assert from_arrays(x, y).task == "tagging"
    with pytest.raises(ValueError, match="valid must have the same values per target"):
        from_arrays(x, y, valid=(x, y[:, 0]))
    with pytest.raises(ValueError, match=r"y must be labels in 0 .. 1, got 0 to 2"):
        from_arrays(x, y, classes=2)
