"""The classifier and the regressor beyond scikit-learn's own checks."""

import pickle

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="needs the extra sklearn")

from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from trellisnet.data.sequences.given import GivenItems
from trellisnet.integrations.sklearn.members import Member, Trained, choose, folds
from trellisnet.models.trellis import TrellisClassifier
from trellisnet.sklearn import TrellisSequenceClassifier, TrellisSequenceRegressor

TINY = {"hidden_size": 4, "members": 2, "max_epochs": 3, "random_state": 0}
LEARNS = {"members": 1, "max_epochs": 20, "learning_rate": 0.05, "readout": "last", "batch_size": 8}


def uneven(count=24, channels=2):
    """Sequences of 3 to 9 steps; the class is the sign of the first value of channel 0."""
    generator = np.random.default_rng(0)
    rows = [generator.normal(size=(int(generator.integers(3, 10)), channels)) for _ in range(count)]
    return rows, np.array(["up" if row[0, 0] > 0 else "down" for row in rows])


def test_a_list_of_sequences_of_unequal_lengths():
    x, y = uneven(60)
    model = TrellisSequenceClassifier(**{**TINY, **LEARNS}).fit(x, y)
    assert model.score(x, y) > 0.85
    probabilities = model.predict_proba(x)
    assert probabilities.shape == (60, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    alone = np.concatenate([model.predict_proba([row]) for row in x[:5]])  # padding does not matter
    np.testing.assert_allclose(alone, probabilities[:5], atol=1e-5)


def test_the_probabilities_are_the_mean_of_the_members():
    x, y = uneven()
    model = TrellisSequenceClassifier(**TINY).fit(x, y)
    row = torch.from_numpy(model.input_scale_.apply(x[0])[None])
    expected = sum(member.eval()(row).prediction.softmax(1) for member in model.members_) / 2
    np.testing.assert_allclose(model.predict_proba(x[:1]), expected.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("form", ["array", "list", "objects", "table", "ragged lists"])
def test_forms_of_sequences(form):
    x = np.random.default_rng(0).normal(size=(16, 5, 1))
    forms = {
        "array": x,
        "list": list(x),
        "objects": np.array([*x, None], dtype=object)[:-1],
        "table": x[:, :, 0],
        "ragged lists": [row[: 3 + i % 3, 0].tolist() for i, row in enumerate(x)],
    }
    model = TrellisSequenceClassifier(**TINY).fit(forms[form], np.arange(16) % 2)
    assert model.n_features_in_ == (5 if form == "table" else 1)
    expected = model.predict_proba(x)  # whatever form was fitted, one channel is read
    np.testing.assert_allclose(model.predict_proba(list(x)), expected, atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(x[:, :, 0]), expected, atol=1e-6)


def test_a_seed_repeats_everything_and_nothing_outside_changes():
    x, y = uneven()
    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    first = TrellisSequenceClassifier(**TINY).fit(x, y)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    torch.rand(3)
    again = clone(first).set_params(n_jobs=1).fit(x, y)
    np.testing.assert_allclose(again.predict_proba(x), first.predict_proba(x), atol=1e-6)
    other = clone(first).set_params(random_state=1).fit(x, y)
    assert not np.allclose(other.predict_proba(x), first.predict_proba(x))
    copy = pickle.loads(pickle.dumps(first))
    assert np.array_equal(copy.predict_proba(x), first.predict_proba(x))


def test_n_jobs_is_the_number_of_threads(monkeypatch):
    seen = []
    monkeypatch.setattr(TrellisSequenceClassifier, "_config", lambda *_: seen.append(torch.get_num_threads()))
    with pytest.raises(AttributeError):  # the recorder gives no configuration
        TrellisSequenceClassifier(**TINY, n_jobs=2).fit(*uneven())
    assert seen == [2]
    with pytest.raises(ValueError, match="n_jobs must be a number of threads, or -1 for all cores, got 0"):
        TrellisSequenceClassifier(**TINY, n_jobs=0).fit(*uneven())


def test_training_stops_early_with_the_best_weights(capsys):
    x, y = uneven()
    y = np.random.default_rng(1).permutation(y)  # nothing to learn
    options = {**TINY, "max_epochs": 100, "patience": 2, "members": 1, "readout": "last", "learning_rate": 0.05}
    model = TrellisSequenceClassifier(**options, batch_size=2, verbose=2).fit(x, y)
    assert model.n_epochs_[0] < 100
    losses = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines() if "epoch " in line]
    assert len(losses) == model.n_epochs_[0]
    assert min(losses) == pytest.approx(model.validation_loss_, abs=1e-4)


def test_verbose(capsys):
    x, y = uneven()
    TrellisSequenceClassifier(**TINY).fit(x, y)
    assert capsys.readouterr().out == ""
    TrellisSequenceClassifier(**TINY, verbose=1).fit(x, y)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("read-out ")[1].split(",")[0] for line in lines[:4]] == ["last", "mean", "max", "attention"]
    assert len(lines) == 6


def test_warm_start_continues():
    x, y = uneven(40)
    model = TrellisSequenceClassifier(**TINY, warm_start=True).fit(x, y)
    members, readout, scale = model.members_, model.readout_, model.input_scale_
    losses = [model.validation_loss_]
    for _ in range(2):
        losses.append(model.fit(x, y).validation_loss_)
    assert losses[-1] < losses[0]
    assert (model.readout_, model.input_scale_) == (readout, scale)
    assert len(model.members_) == len(members)
    with pytest.raises(
        ValueError, match="y has the class 'left', which was not in training, only 'down', 'up': fit a new"
    ):
        model.fit(x, ["left", *y[1:]])


@pytest.mark.parametrize("readout", ["last", "mean", "max", "attention"])
def test_a_readout_can_be_chosen(readout):
    model = TrellisSequenceClassifier(**TINY, readout=readout).fit(*uneven())
    assert model.readout_ == readout
    assert [member.options.readout for member in model.members_] == [readout] * 2


def test_models_of_a_member_share_the_body_and_its_output():
    shared = [TrellisClassifier(2, 4, 2, num_classes=3, readout=each) for each in ("mean", "max", "attention")]
    member = Member(shared)
    x, labels = np.random.default_rng(0).normal(size=(4, 6, 2)), np.array([0, 2, 1, 1])
    items = GivenItems([row[: 3 + i] for i, row in enumerate(x)], labels)
    inputs, targets = (torch.from_numpy(each) for each in items.take(np.arange(4), 6))
    batch = type("Batch", (), {"inputs": inputs, "targets": targets, "lengths": torch.tensor([3, 4, 5, 6])})
    expected = [model(inputs, targets, batch.lengths).loss for model in shared]
    torch.testing.assert_close(torch.stack(member.losses(batch)), torch.stack(expected))
    assert len({id(model.net) for model in shared}) == 1


def test_the_first_readout_is_kept_unless_another_is_clearly_better():
    """Models whose losses on the held-out sequences are known: 0.7 +- noise for the first, less for the second."""

    class Known(torch.nn.Module):
        def __init__(self, losses):
            super().__init__()
            self.losses = torch.tensor(losses)

        def forward(self, x, targets=None, lengths=None):
            return type("Out", (), {"prediction": self.losses})

        def loss_of(self, prediction, targets):
            return prediction.mean()

    held = GivenItems([np.zeros((2, 1), np.float32)] * 4, np.zeros(4, np.int64))

    def chosen(other):
        found = [Trained(Known(each), float(np.mean(each)), 1) for each in ([0.7, 0.5, 0.9, 0.7], other)]
        return found.index(choose(found, held, "cpu"))

    assert chosen([0.6, 0.4, 0.8, 0.6]) == 1  # better by 0.1 everywhere
    assert chosen([0.6, 0.9, 0.5, 0.7]) == 0  # better by 0.025 in the mean, with a standard error of 0.19
    assert chosen([0.8, 0.9, 0.9, 0.7]) == 0


def test_folds_hold_out_a_share_of_every_class():
    groups = np.repeat([0, 1, 2], [20, 10, 1])
    parts = folds(groups, 5, 0.2, seed=0)
    for kept, held in parts:
        assert np.array_equal(np.sort(np.concatenate([kept, held])), np.arange(31))
        assert np.bincount(groups[held], minlength=3).tolist() == [4, 2, 0]
    assert sorted(np.concatenate([held for _, held in parts])) == list(range(30))  # each once


def test_many_values_in_their_own_units():
    x, _ = uneven(40)
    y = np.array([[100 + 10 * row[0, 0], -row[0, 0]] for row in x])
    model = TrellisSequenceRegressor(**{**TINY, **LEARNS}).fit(x, y)
    assert model.predict(x).shape == (40, 2)
    assert model.score(x, y) > 0.5
    assert TrellisSequenceRegressor(**TINY).fit(x, y[:, 0]).predict(x).shape == (40,)


def test_in_a_cross_validation():
    x = np.random.default_rng(0).normal(size=(20, 4, 2))
    assert len(cross_val_score(TrellisSequenceClassifier(**TINY), x, np.arange(20) % 2, cv=2)) == 2


def wrong(x, i, value):
    return [value if j == i else row for j, row in enumerate(x)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda m, x, y: m.fit(wrong(x, 3, np.ones((4, 3))), y),
            r"X must be .* a list of \(T, 2\).*\(4, 3\) for X\[3\]",
        ),
        (lambda m, x, y: m.fit(wrong(x, 2, x[2] * np.nan), y), r"X must be finite numbers, got nan in X\[2\]"),
        (lambda m, x, y: m.fit(x, ["up"] * len(x)), "y must have at least two classes, got 1 class: 'up'"),
        (lambda m, x, y: m.fit(x, y).score(x, ["left", *y[1:]]), "y has the class 'left', which was not in training"),
        (lambda m, x, y: m.fit(x, y).predict([row[:, :1] for row in x]), "X has 1 channels, but .* is expecting 2"),
        (lambda m, x, y: m.fit(x, y[:-1]), "inconsistent numbers of samples"),
        (lambda m, x, y: m.fit(x, None), "requires y to be passed"),
        (lambda m, x, y: m.set_params(readout="first").fit(x, y), "readout must be one of 'auto', 'last'"),
        (
            lambda m, x, y: m.set_params(validation_fraction=1.5).fit(x, y),
            "validation_fraction must be below 1, got 1.5",
        ),
        (
            lambda m, x, y: m.set_params(model_options={"aux_every": 1}).fit(x, y),
            "aux_every and reconstruct_steps need a read-out that is chosen, got readout='auto'",
        ),
        (lambda m, x, y: m.set_params(members=0).fit(x, y), "members must be an integer >= 1, got 0"),
        (lambda m, x, y: m.set_params(device="gpu9").fit(x, y), "device 'gpu9' cannot be used"),
    ],
)
def test_wrong_calls(call, message):
    with pytest.raises(ValueError, match=message):
        call(TrellisSequenceClassifier(**{**TINY, "max_epochs": 1}), *uneven())
