"""scikit-learn's own checks of estimators, with small nets and few epochs, and aeon's where it is installed."""

import pytest

pytest.importorskip("sklearn", reason="needs the extra sklearn")

from sklearn.utils.estimator_checks import parametrize_with_checks

from trellisnet.sklearn import TrellisSequenceClassifier, TrellisSequenceRegressor

SMALL = {"hidden_size": 6, "members": 1, "max_epochs": 8, "readout": "last", "learning_rate": 0.05, "batch_size": 32}


@parametrize_with_checks([TrellisSequenceClassifier(**SMALL), TrellisSequenceRegressor(**SMALL)])
def test_scikit_learn_accepts(estimator, check):
    check(estimator)
