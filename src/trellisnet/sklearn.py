"""Trellis networks as estimators of scikit-learn; needs the extra `sklearn`.

The estimators are in `trellisnet.integrations.sklearn`.
"""

from __future__ import annotations

from trellisnet.integrations.sklearn import require_sklearn

require_sklearn()

from trellisnet.integrations.sklearn.estimators import TrellisSequenceClassifier, TrellisSequenceRegressor  # noqa: E402
from trellisnet.integrations.sklearn.forecaster import TrellisForecaster  # noqa: E402

__all__ = ["TrellisForecaster", "TrellisSequenceClassifier", "TrellisSequenceRegressor"]
