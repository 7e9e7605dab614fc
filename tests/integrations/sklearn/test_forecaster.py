import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs the extra sklearn")

from sklearn.base import clone

from trellisnet.integrations.sklearn.members import last_part
from trellisnet.sklearn import TrellisForecaster

TINY = {"hidden_size": 4, "members": 1, "max_epochs": 2, "random_state": 0, "readout": "last", "horizon": 4}


def waves(steps=120, channels=1):
    """Waves around 100 of periods 12, 13, ..., on a slope."""
    times = np.arange(steps)[:, None]
    return 100 + 10 * np.sin(2 * np.pi * times / (12 + np.arange(channels))) + 0.1 * times


def test_it_forecasts_waves_in_their_own_units():
    series = waves(160)[:, 0]
    model = TrellisForecaster(horizon=12, members=1, hidden_size=16, readout="last", random_state=0, window=24)
    model.set_params(max_epochs=15, learning_rate=0.02, batch_size=8).fit(series[:136])
    assert model.score(series[136:]) > 0.8  # two horizons: the second continues from forecasts


def test_shapes():
    series = waves(60, channels=2)
    model = TrellisForecaster(**TINY).fit(series)
    assert model.window_ == 28
    assert model.predict().shape == (4, 2)
    assert model.predict(9).shape == (9, 2)
    np.testing.assert_array_equal(model.predict(9)[:4], model.predict())
    assert TrellisForecaster(**TINY).fit(series[:, 0]).predict(5).shape == (5,)


def test_longer_forecasts_continue_from_forecasts():
    series = waves(60)[:, 0]
    model = TrellisForecaster(**TINY).fit(series)
    first = model.predict(4)
    np.testing.assert_allclose(model.predict(8)[4:], model.predict(4, y=np.concatenate([series, first])), rtol=1e-6)


def test_the_level_of_the_series_does_not_matter():
    series = waves(60)[:, 0]
    low, high = (TrellisForecaster(**TINY).fit(series + level).predict() - level for level in (0, 5000))
    np.testing.assert_allclose(low, high, atol=1e-2)


def test_held_out_targets_are_not_trained_on():
    kept, held = last_part(20, 0.2, gap=3)  # of windows with four steps to predict each
    assert held.tolist() == [16, 17, 18, 19]
    assert kept[-1] + 3 < held[0]  # in steps after the window: the last trained target is before the first held out


def test_cloned_pickled_and_continued():
    series = waves(60)
    model = TrellisForecaster(**TINY, warm_start=True).fit(series)
    assert clone(model).get_params() == model.get_params()
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(), model.predict())
    before = model.validation_loss_
    assert model.set_params(max_epochs=10).fit(series).validation_loss_ < before
    with pytest.raises(ValueError, match="warm_start continues with 1 channels and horizon=4, got 2 and 4"):
        model.fit(waves(60, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.fit(waves(10)), "y must have at least 11 steps for window=3 and horizon=4, got 10"),
        (
            lambda m: m.fit(np.where(np.arange(60) == 7, np.nan, 1.0)),
            "y must be finite numbers, got nan at step 7: fill it first",
        ),
        (lambda m: m.fit(np.zeros((2, 3, 4))), r"y must be a series \(T,\) or \(T, C\), got shape \(2, 3, 4\)"),
        (lambda m: m.set_params(horizon=0).fit(waves()), "horizon must be an integer >= 1, got 0"),
        (lambda m: m.fit(waves(60)).predict(y=waves(5)), "y must have 1 channels and at least 28 steps, got shape"),
    ],
)
def test_wrong_calls(call, message):
    with pytest.raises(ValueError, match=message):
        call(TrellisForecaster(**{**TINY, "max_epochs": 1}))
