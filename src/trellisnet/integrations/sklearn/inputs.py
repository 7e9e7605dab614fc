"""What estimators read: arrays (N, T, C), tables (N, T) of one channel, or lists of sequences of any lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names, check_array, validate_data

from trellisnet.data.sequences.given import read_sequences

Rows = list[NDArray[Any]]  # sequences (T, C)


def read_training(estimator: Any, X: Any) -> Rows:
    """The sequences (T, C) of `fit`; sets `n_channels_` and `n_features_in_` of the estimator.

    `n_features_in_` is the number of columns of a table, or else that of channels.
    """
    if _is_table(X):
        table = validate_data(estimator, X, dtype=np.float64, reset=True)
        estimator.n_channels_, estimator.is_table_ = 1, True
        return list(table[:, :, None])
    rows: Rows = [*read_sequences("X", _listed(X))]
    _check_feature_names(estimator, [], reset=True)
    estimator.n_channels_ = estimator.n_features_in_ = rows[0].shape[1]
    estimator.is_table_ = False
    return rows


def read_new(estimator: Any, X: Any) -> Rows:
    """The sequences (T, C) of `predict`, of any lengths; only a table must be as wide as that of `fit`."""
    if _is_table(X):
        if estimator.is_table_:
            table = validate_data(estimator, X, dtype=np.float64, reset=False)
        else:
            table = check_array(X, dtype=np.float64)
        rows = list(table[:, :, None])
    else:
        rows = [*read_sequences("X", _listed(X))]
    if (channels := rows[0].shape[1]) != estimator.n_channels_:
        name = type(estimator).__name__
        raise ValueError(f"X has {channels} channels, but {name} is expecting {estimator.n_channels_}, those of fit")
    return rows


def _listed(X: Any) -> Any:
    """An array of sequences as a list of them."""
    return list(X) if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1 else X


def _is_table(X: Any) -> bool:
    """Whether X is not a 3-D array and not a list of sequences of several channels or of unequal lengths."""
    X = _listed(X)
    if not isinstance(X, (list, tuple)):
        return getattr(X, "ndim", 2) != 3
    if not X or any(not hasattr(row, "__len__") for row in X):
        return True  # a table that is wrong, which scikit-learn explains
    return len({len(row) for row in X}) == 1 and all(np.ndim(row[0]) == 0 for row in X if len(row))
