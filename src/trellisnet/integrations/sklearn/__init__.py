"""Estimators with the interface of scikit-learn, the extra `sklearn`; import them from `trellisnet.sklearn`."""

from __future__ import annotations

from trellisnet.extras import require


def require_sklearn() -> None:
    """Import scikit-learn; an ImportError that names the extra if it is not installed."""
    require("sklearn", "sklearn", "trellisnet.sklearn", "scikit-learn")
