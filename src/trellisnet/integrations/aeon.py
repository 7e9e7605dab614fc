"""The estimators of `trellisnet.sklearn` as estimators of aeon, whose arrays are (N, C, T); needs the package aeon."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trellisnet.integrations.sklearn import require_sklearn

require_sklearn()
try:
    from aeon.classification import BaseClassifier
    from aeon.regression import BaseRegressor
except ImportError:

    class BaseClassifier:  # type: ignore[no-redef]
        """In its place without aeon, so that this module can be imported."""

        def __init__(self) -> None:
            raise ImportError("trellisnet.integrations.aeon needs the aeon package: pip install aeon")

    BaseRegressor = BaseClassifier

from sklearn.base import clone  # noqa: E402

from trellisnet.integrations.sklearn.estimators import TrellisSequenceClassifier, TrellisSequenceRegressor  # noqa: E402

TAGS: dict[str, Any] = {
    "capability:multivariate": True,
    "capability:unequal_length": True,
    "non_deterministic": True,  # without a random_state
    "X_inner_type": ["np-list", "numpy3D"],
    "algorithm_type": "deeplearning",
}


class _Adapter:
    """What both have in common: an estimator that reads time before channels."""

    _tags: ClassVar[dict[str, Any]] = TAGS
    _kind: ClassVar[type[Any]]
    estimator: Any

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: NDArray[Any]) -> Any:
        self.estimator_ = self._kind() if self.estimator is None else clone(self.estimator)
        self.estimator_.fit(_steps_first(X), y)
        return self

    def _predict(self, X: Any) -> NDArray[Any]:
        found: NDArray[Any] = self.estimator_.predict(_steps_first(X))
        return found

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        return {"estimator": cls._kind(hidden_size=4, members=1, max_epochs=2, random_state=0)}


class AeonClassifier(_Adapter, BaseClassifier):  # type: ignore[misc]  # aeon has no types
    """A `TrellisSequenceClassifier` for aeon: its datasets, pipelines and benchmarks.

    Args:
        estimator: a `TrellisSequenceClassifier`; default one with its defaults.
    """

    _kind = TrellisSequenceClassifier

    def _predict_proba(self, X: Any) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.estimator_.predict_proba(_steps_first(X))
        return found


class AeonRegressor(_Adapter, BaseRegressor):  # type: ignore[misc]
    """A `TrellisSequenceRegressor` for aeon.

    Args:
        estimator: a `TrellisSequenceRegressor`; default one with its defaults.
    """

    _kind = TrellisSequenceRegressor


def _steps_first(X: Any) -> Any:
    """Sequences (C, T) as (T, C)."""
    return [np.asarray(row).T for row in X] if isinstance(X, list) else np.swapaxes(X, 1, 2)
