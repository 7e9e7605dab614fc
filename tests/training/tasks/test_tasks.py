"""What all tasks have in common, and that a new one needs nothing but its own file and a line of the registry."""

import json
from dataclasses import replace

import pytest
import torch

from tiny import tiny_config, tiny_pairs, tiny_sequences, tiny_text
from trellisnet.baselines.rnn import GruBody
from trellisnet.models.language import LanguageModel
from trellisnet.models.sequence import SequenceClassifier, SequenceLabeller, SequenceRegressor
from trellisnet.training import fit, tasks
from trellisnet.training.config import DataConfig, model_config
from trellisnet.training.metrics import Metric
from trellisnet.training.progress import Progress
from trellisnet.training.reporting.summary import formatted, summarise
from trellisnet.training.tasks import TASKS, ClassificationTask, LanguageTask, make_task


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))


def data_of(name):
    if name == "translation":
        return tiny_pairs()
    return tiny_text() if name == "language" else tiny_sequences(name)


def config_of(name):
    """A tiny experiment of a task."""
    config = tiny_config(text=name == "language")
    if name != "translation":
        return config
    return replace(config, data=DataConfig("translation"), model=model_config("gru", "pairs")(hidden_size=6))


@pytest.mark.parametrize("name", TASKS)
def test_a_task_knows_its_metrics(name):
    task = make_task(config_of(name), data_of(name))
    metrics = task.evaluate_alone("valid")
    assert {task.metric.name, *(metric.name for metric in task.others)} == set(metrics)
    assert task.judged_by(metrics) == task.metric.judged(metrics[task.metric.name])
    facts = json.loads(json.dumps(task.facts()))
    assert facts["task"] == name
    assert Metric(**facts["metrics"][0]) == task.metric
    assert facts["metric"] == task.metric.name


def test_words_are_judged_by_perplexity_and_characters_by_bits():
    assert LanguageTask(tiny_config(), tiny_text("words")).metric.name == "perplexity"
    assert LanguageTask(tiny_config(), tiny_text("characters")).metric.name == "bits"


@pytest.mark.parametrize("name", ["classification", "labels", "regression", "tokens", "translation"])
def test_ways_of_evaluation_belong_to_text(name):
    task = make_task(config_of(name), data_of(name))
    with pytest.raises(ValueError, match=f"evaluation belongs to language models: got 'windows' for {name}"):
        task.protocol("windows")
    with pytest.raises(ValueError, match=f"belong to language models, not {name}"):
        task.evaluate_adapting("test")


def gru(inputs, **options):
    return GruBody(inputs, hidden_size=4, **options)


@pytest.mark.parametrize(
    ("name", "model", "message"),
    [
        ("language", lambda: SequenceClassifier(gru(2), 2), "model must be a LanguageModel to learn the text tiny"),
        (
            "language",
            lambda: LanguageModel(gru(4), 9),
            "vocabulary of the text tiny, .*, got another of 9",
        ),
        ("classification", lambda: SequenceRegressor(gru(2), 2), "must be a SequenceClassifier for the classification"),
        ("classification", lambda: SequenceClassifier(gru(3), 2), "must have input_size = 2 for the data tiny, got 3"),
        ("classification", lambda: SequenceClassifier(gru(2), 5), "must have num_classes = 2 for the data tiny, got 5"),
        ("labels", lambda: SequenceRegressor(gru(2), 2), "must be a SequenceLabeller for the labels of tiny"),
        ("labels", lambda: SequenceLabeller(gru(2), 3), "must have num_labels = 2 for the data tiny, got 3"),
        ("regression", lambda: SequenceRegressor(gru(2), 7), "must have num_values = 1 for the data tiny, got 7"),
        ("tokens", lambda: LanguageModel(gru(4), 9), "must have vocab_size = 5 for the data tiny, got 9"),
    ],
)
def test_a_model_that_does_not_fit_is_named(name, model, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make_task(tiny_config(text=name == "language"), data_of(name), model())


def test_a_model_without_a_vocabulary_gets_that_of_the_text():
    model = LanguageModel(gru(4), 7)
    make_task(tiny_config(), tiny_text(), model)
    assert model.vocabulary == tiny_text().vocabulary


@pytest.mark.parametrize("ragged", [False, True])
def test_labels_are_judged_by_the_likelihood_of_a_step(ragged):
    """Over all steps of the split, whatever the batches."""
    data = tiny_sequences("labels", ragged=ragged)
    task = make_task(tiny_config(text=False), data)
    total, steps = 0.0, 0
    for batch in data.batches("valid", 1):
        shares = task.model.predict(batch.inputs)[0].double()
        for step, targets in zip(shares, batch.targets[0], strict=True):
            total -= sum((p if label else 1 - p).log().item() for p, label in zip(step, targets, strict=True))
            steps += 1
    assert task.evaluate_alone("valid")["nll"] == pytest.approx(total / steps, rel=1e-6)
    assert task.protocol() == "every sequence of the split; nats per step, the sum over all labels"


def test_data_without_anything_to_choose_by():
    data = tiny_sequences()
    for name in ("valid", "test"):
        del data.splits[name]
    with pytest.raises(ValueError, match="tiny must have a split 'valid' or 'test' to choose the best epoch by"):
        make_task(tiny_config(text=False), data)


class ErrorTask(ClassificationTask):
    """A task of someone's own: the share of wrong answers and how sure the model is."""

    metric = Metric("certainty", higher_is_better=True, decimals=1)
    others = (Metric("errors", percent=True, decimals=0),)

    def measure(self, sums):
        wrong = 1 - sums["accuracy"] / sums["count"]
        return {"errors": wrong, "certainty": 10 * (1 - wrong)}

    def protocol(self, evaluation=None):
        return "by hand"


def test_a_new_task_is_one_class_and_one_line(tmp_path, monkeypatch):
    """Its metrics choose the best model, and the report shows them in their own format."""
    monkeypatch.setitem(TASKS, "errors", ErrorTask)
    data = tiny_sequences()
    object.__setattr__(data, "task", "errors")
    monkeypatch.setattr(tasks, "load", lambda name, **options: data)
    run = fit.train_new(tiny_config(text=False, epochs=3), "run", tmp_path / "run")
    summary = summarise(run)
    assert summary.metric == ErrorTask.metric
    assert summary.best()[1] == max(value for _, value in summary.curve(summary.metric))
    assert formatted(0.25, summary.metrics["errors"]) == "25 %"
    result = json.loads((run.folder / "result.json").read_text())
    assert result["metrics"]["valid"]["certainty"] == pytest.approx(summary.best()[1])
    assert result["protocol"] == "by hand"
    report = (run.folder / "report.html").read_text()
    assert f"test certainty {ErrorTask.metric.formatted(result['metrics']['test']['certainty'])}." in report
