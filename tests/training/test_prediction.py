"""Results in the user's own terms, from the run alone: the data that was trained on is gone."""

import csv
import math

import numpy as np
import pytest
import torch
from torch import nn

from tiny import tiny_sequences, tiny_text
from trellisnet import TrainingConfig, TrellisClassifier, TrellisLM, TrellisRegressor, fit, predict
from trellisnet.baselines.rnn import GruBody
from trellisnet.data import load
from trellisnet.models.sequence import SequenceLabeller
from trellisnet.training.progress import Progress

RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(4, 9, size=40).tolist()
SERIES = [50 + 10 * RNG.standard_normal((length, 2)) for length in LENGTHS]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))


def write_table(path, sequences, columns=("x", "y"), **answers):
    """One row per step; answers are columns that are constant in a series."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["name", "moment", *columns, *answers])
        for number, values in enumerate(sequences):
            for moment, value in enumerate(values):
                table.writerow([f"s{number}", moment, *value, *(answer[number] for answer in answers.values())])


def config(**options):
    return TrainingConfig(**{"epochs": 1, "batch_size": 8, "evaluation_batch": 7, **options})


OPTIONS = {"name": "series", "values": ["x", "y"], "series": "name", "time": "moment"}


def test_labels_with_probabilities(tmp_path):
    path, new = tmp_path / "train.csv", tmp_path / "new.csv"
    write_table(path, SERIES, label=["up" if values[0, 0] > 50 else "down" for values in SERIES])
    data = {**OPTIONS, "path": path, "task": "classification", "label": "label"}
    model = TrellisClassifier(2, 6, 4, 2, dilation=[1, 2, 4, 8])
    run = fit(model, data, config(), tmp_path / "run")
    scale = load(**{**data, "path": str(path)}).input_scale
    path.unlink()
    write_table(new, SERIES[::-1])  # without labels
    found = predict(run, new)
    assert list(found) == ["series", "label", "p(down)", "p(up)"]
    assert found["series"] == [f"s{i}" for i in range(40)]
    for i, values in enumerate(SERIES[::-1]):
        with torch.no_grad():
            shares = model(torch.from_numpy(scale.apply(values))[None]).prediction.softmax(1)[0].tolist()
        assert [found["p(down)"][i], found["p(up)"][i]] == pytest.approx(shares, abs=1e-5)
        assert found["label"][i] == ("down", "up")[int(np.argmax(shares))]
    assert predict(tmp_path / "run", SERIES[::-1])["p(up)"] == pytest.approx(found["p(up)"])  # arrays
    last = predict(tmp_path / "run", new, which="last")
    assert last["series"] == found["series"]


def test_values_in_the_units_of_the_file(tmp_path):
    path, new = tmp_path / "train.csv", tmp_path / "new.csv"
    mass, size = [1000 + values[0, 0] for values in SERIES], [values[0, 1] for values in SERIES]
    write_table(path, SERIES, series=mass, size=size)
    data = {**OPTIONS, "path": path, "task": "regression", "targets": ["series", "size"]}
    fit(TrellisRegressor(2, 6, 4, num_values=2), data, config(epochs=3), tmp_path / "run")
    path.unlink()
    write_table(new, SERIES[:5])
    found = predict(tmp_path / "run", new)
    assert list(found) == ["series", "series (value)", "size"]
    assert len(found["series (value)"]) == 5
    assert np.mean(found["series (value)"]) == pytest.approx(1050, abs=15)
    assert np.mean(found["size"]) == pytest.approx(50, abs=15)


def test_forecasts_follow_the_last_window_of_each_series(tmp_path):
    path, new = tmp_path / "train.csv", tmp_path / "new.csv"
    long = [np.stack([100 + np.arange(80.0) % 5, np.zeros(80)], axis=1)] * 2
    write_table(path, long)
    data = {**OPTIONS, "path": path, "task": "forecasting", "window": 6, "horizon": 3}
    model = TrellisRegressor(2, 6, 4, num_values=6)
    fit(model, data, config(), tmp_path / "run")
    loaded = load(**{**data, "path": str(path)})
    path.unlink()
    write_table(new, [long[0][:20], long[0][:9]])
    found = predict(tmp_path / "run", new)
    assert list(found) == ["series", "step", "x", "y"]
    assert found["series"] == ["s0"] * 3 + ["s1"] * 3
    assert found["step"] == [1, 2, 3, 1, 2, 3]
    windows = torch.from_numpy(np.stack([loaded.input_scale.apply(long[0][end - 6 : end]) for end in (20, 9)]))
    expected = loaded.target_scale.restore(model.predict(windows).numpy()).reshape(6, 2)
    assert found["x"] == pytest.approx(expected[:, 0].tolist(), rel=1e-5)
    write_table(new, [long[0][:5]])
    with pytest.raises(ValueError, match=r"new\.csv: series 's0' must have at least window = 6 steps, got 5"):
        predict(tmp_path / "run", new)


def test_values_at_every_step(tmp_path):
    model = TrellisRegressor(2, 6, 3, 1, each_step=True)
    run = fit(model, (SERIES, [values[:, :1] / 50 for values in SERIES]), config(), tmp_path / "run")
    found = predict(run, SERIES[:3])
    assert list(found) == ["series", "step", "value 1"]
    assert found["series"] == [str(i) for i in range(3) for _ in range(LENGTHS[i])]
    alone = [model.predict(torch.tensor(values, dtype=torch.float32)[None])[0, :, 0] for values in SERIES[:3]]
    assert found["value 1"] == pytest.approx(torch.cat(alone).tolist(), abs=1e-5)


def test_labels_at_every_step(tmp_path):
    model = SequenceLabeller(GruBody(2, hidden_size=6), 2)
    run = fit(model, tiny_sequences("labels", ragged=True), config(), tmp_path / "run")
    found = predict(run, SERIES[:3])
    assert list(found) == ["series", "step", "p(0)", "p(1)"]
    alone = [model.predict(torch.tensor(values, dtype=torch.float32)[None])[0] for values in SERIES[:3]]
    assert found["p(1)"] == pytest.approx(torch.cat(alone)[:, 1].tolist(), abs=1e-5)


def test_tokens(tmp_path):
    data = tiny_sequences("tokens")
    model = TrellisLM(5, 4, 6, 3)
    run = fit(model, data, config(), tmp_path / "run")
    ids = np.array([[0, 1, 2], [4, 3, 2]])
    found = predict(run, ids)
    log_prob = model.log_prob(torch.tensor(ids)).flatten(0, 1)
    assert found["token"] == log_prob.argmax(1).tolist()
    assert found["probability"] == pytest.approx(log_prob.exp().amax(1).tolist(), abs=1e-5)
    with pytest.raises(ValueError, match=r"sequence 1 must be of integers in 0 \.\. 4"):
        predict(run, np.array([[0, 1], [5, 3]]))


def text_run(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"line {i * i % 97} of {i % 13}\n" for i in range(200)))
    lm = TrellisLM(len(load("text", path=path).vocabulary), 4, 8, 3)
    run = fit(lm, {"name": "text", "path": path}, config(steps=20, sample=0), tmp_path / "run")
    path.unlink()
    return run


def test_scores_of_texts(tmp_path):
    run = text_run(tmp_path)
    lines = ["line 1 of 2", "", "of line of line 5 of 4", "l"]
    (tmp_path / "new.txt").write_text("\n".join(lines) + "\n")
    found = predict(run, tmp_path / "new.txt")
    assert found["line"] == [1, 2, 3, 4]
    assert found["tokens"] == [11, 0, 22, 1]
    assert found["perplexity"][1] is found["bits"][1] is None
    for i in (0, 2, 3):
        score = run.model.score("\n" + lines[i])
        assert found["log_probability"][i] == pytest.approx(score.log_prob.sum().item(), rel=1e-4)
        assert found["perplexity"][i] == pytest.approx(math.exp(-found["log_probability"][i] / found["tokens"][i]))
        assert found["bits"][i] == pytest.approx(score.bits, rel=1e-4)
    assert predict(run, lines) == found
    whole = predict(run, tmp_path / "new.txt", per="document")
    assert whole["document"] == [1]
    assert whole["tokens"] == [sum(found["tokens"]) + 4]
    assert whole["bits"][0] == pytest.approx(run.model.score("\n" + "\n".join(lines) + "\n").bits, rel=1e-4)


def test_texts_that_cannot_be_read(tmp_path):
    run = text_run(tmp_path)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ValueError, match=r"empty\.txt: is empty"):
        predict(run, tmp_path / "empty.txt")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"bad\.txt: must be UTF-8"):
        predict(run, tmp_path / "bad.txt")
    with pytest.raises(FileNotFoundError, match=r"missing\.txt: not found"):
        predict(run, tmp_path / "missing.txt")
    with pytest.raises(ValueError, match="per must be one of 'line', 'document', got 'word'"):
        predict(run, ["line"], per="word")
    with pytest.raises(TypeError, match="inputs must be the path of a text file or a list of texts, got int"):
        predict(run, 3)


def test_a_vocabulary_without_line_ends(tmp_path):
    """The first token is then only read."""
    lm = TrellisLM(7, 4, 6, 3)
    run = fit(lm, tiny_text(), config(steps=6, sample=0), tmp_path / "run")
    assert predict(run, ["abcab", "a"])["tokens"] == [4, 0]
    with pytest.raises(ValueError, match="text 2: text must be of the vocabulary's characters, got 'z' at position 0"):
        predict(run, ["ab", "z"])


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(2, 1)

    def forward(self, inputs, targets, lengths=None):
        self.prediction = self.out(inputs[:, 0])
        self.loss = None if targets is None else (self.prediction - targets).square().mean()
        return self


def test_a_module_of_ones_own_must_be_given_again(tmp_path):
    run = fit(Own(), (SERIES, [values[0, 0] for values in SERIES]), config(), tmp_path / "run")
    with pytest.raises(ValueError, match=r"run has a Own of your own: use trellisnet\.predict with model="):
        predict(run, SERIES)
    found = predict(tmp_path / "run", SERIES, model=Own())
    first = torch.tensor(np.stack([values[0] for values in SERIES]), dtype=torch.float32)
    assert found["value 1"] == pytest.approx(run.model.out(first)[:, 0].tolist(), rel=1e-5)


def test_mistakes_are_named(tmp_path):
    path, new = tmp_path / "train.csv", tmp_path / "new.csv"
    write_table(path, SERIES, label=[i % 2 for i in range(40)])
    data = {**OPTIONS, "path": path, "task": "classification", "label": "label"}
    fit(TrellisClassifier(2, 6, 2, 2), data, config(), tmp_path / "run")
    write_table(new, SERIES, columns=("x", "z"))
    with pytest.raises(ValueError, match=r"new\.csv: must have a column 'y', got 'name', 'moment', 'x', 'z'"):
        predict(tmp_path / "run", new)
    with pytest.raises(ValueError, match="inputs: must have 2 channels, as what was trained on, got 3"):
        predict(tmp_path / "run", np.zeros((4, 5, 3)))
    new.write_text("")
    with pytest.raises(ValueError, match=r"new\.csv: is empty"):
        predict(tmp_path / "run", new)
    with pytest.raises(ValueError, match=r"new\.txt: must end in \.csv, \.parquet, \.npy, \.npz, \.ts, as what"):
        predict(tmp_path / "run", tmp_path / "new.txt")
    with pytest.raises(ValueError, match="per belongs to language models: got 'line' for classification"):
        predict(tmp_path / "run", SERIES, per="line")
    with pytest.raises(FileNotFoundError, match="has no model 'worst' yet"):
        predict(tmp_path / "run", SERIES, which="worst")
    for folder in ("run", "run/best"):
        (tmp_path / folder / "task.json").unlink()
    with pytest.raises(ValueError, match=r"run has no task\.json, .* trained by an older version"):
        predict(tmp_path / "run", SERIES)


def test_arrays_were_trained_on_and_a_table_is_given(tmp_path):
    fit(TrellisClassifier(2, 6, 2, 2), (SERIES, [i % 2 for i in range(40)]), config(), tmp_path / "run")
    write_table(tmp_path / "new.csv", SERIES)
    with pytest.raises(ValueError, match=r"new\.csv: must end in \.npy, \.npz, \.ts, as what was trained on"):
        predict(tmp_path / "run", tmp_path / "new.csv")
    np.save(tmp_path / "new.npy", np.stack([values[:4] for values in SERIES]))
    assert len(predict(tmp_path / "run", tmp_path / "new.npy")["label"]) == 40
