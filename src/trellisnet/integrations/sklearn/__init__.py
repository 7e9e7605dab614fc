"""Estimators with the interface of scikit-learn, the extra `sklearn`; import them from `trellisnet.sklearn`."""

from __future__ import annotations


def require_sklearn() -> None:
    """Import scikit-learn.

    Raises:
        ImportError: it is missing; names the extra that installs it.
    """
    try:
        import sklearn  # noqa: F401, PLC0415
    except ImportError as error:
        raise ImportError("trellisnet.sklearn needs the scikit-learn package, of the extra 'sklearn'") from error
