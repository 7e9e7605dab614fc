"""aeon's own checks of estimators; in an environment with aeon only."""

import numpy as np
import pytest

pytest.importorskip("aeon", reason="needs aeon")

from aeon.testing.estimator_checking import parametrize_with_checks

from trellisnet.integrations.aeon import AeonClassifier, AeonRegressor
from trellisnet.sklearn import TrellisSequenceClassifier

pytestmark = pytest.mark.filterwarnings("default")  # aeon's own


@parametrize_with_checks([AeonClassifier, AeonRegressor])
def test_aeon_accepts(check):
    check()


def test_the_adapter_only_transposes():
    x, y = np.random.default_rng(0).normal(size=(12, 2, 5)), np.arange(12) % 2
    estimator = TrellisSequenceClassifier(hidden_size=4, members=1, max_epochs=2, random_state=0)
    adapter = AeonClassifier(estimator).fit(x, y)
    expected = estimator.fit(x.transpose(0, 2, 1), y).predict_proba(x.transpose(0, 2, 1))
    assert np.array_equal(adapter.predict_proba(x), expected)
