"""A classifier and a regressor of sequences for scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite, check_array, check_consistent_length
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d
from typing_extensions import Self

from trellisnet.data.sequences.data import Scale
from trellisnet.integrations.sklearn.base import TrellisEstimator
from trellisnet.integrations.sklearn.inputs import Rows, read_new, read_training
from trellisnet.integrations.sklearn.members import folds
from trellisnet.models.trellis import TrellisClassifier, TrellisRegressor


class _SequenceEstimator(TrellisEstimator):
    """An estimator with one answer per sequence."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _read(self, X: Any, y: Any) -> Rows:
        """The sequences of `fit`, not scaled yet."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        rows = read_new(self, X) if self._continues() else read_training(self, X)
        check_consistent_length(rows, y)
        return rows


class TrellisSequenceClassifier(ClassifierMixin, _SequenceEstimator):  # type: ignore[misc]
    """A classifier of sequences.

    An ensemble of small bidirectional trellis networks. Each is trained on most of the sequences and stopped by the
    rest of them; the probabilities of all are averaged. Inputs are standardised inside, channel by channel.

    Args:
        hidden_size: channels of every layer.
        num_layers: layers, with dilations 1, 2, 4, ...; default as many as the median length of a sequence needs, at
            most 10.
        readout: what is read of a network's output: "last", "mean", "max" or "attention"; or "auto": the first member
            is trained with each of them, and the held-out loss chooses. "last", the cheapest, is kept if none is better
            by more than a standard error.
        members: networks of the ensemble; default 3 up to 1,000 sequences, else 1.
        max_epochs: default so many that training has about 1,000 steps, but 20 to 400.
        batch_size: default 16 up to 1,000 sequences, else 64.
        learning_rate: highest learning rate of AdamW, which a cosine lowers to 0.
        validation_fraction: share of every class that each member holds out.
        patience: a member stops when so many evaluations, one per epoch or per 10 steps, have not lowered its held-out
            loss; its best weights are kept.
        model_options: further options of `TrellisClassifier`, such as {"cell": "gru", "hidden_dropout": 0.0}; here
            `bidirectional` is True and `hidden_dropout` 0.2 by default.
        warm_start: `fit` continues from the members of the last `fit`, with their read-out, classes and scale.
        device: auto, cpu, cuda, mps, ...
        n_jobs: threads, as joblib counts them: -1 is all cores; default torch's.
        random_state: an integer makes the result repeatable.
        verbose: 1: print a line per member; 2: per epoch.

    Attributes:
        classes_: the classes, sorted.
        members_: the trained models, each a `TrellisClassifier`.
        readout_: the read-out that was chosen.
        validation_loss_: its mean loss on the held-out parts.
        n_epochs_: epochs of each member.
        input_scale_: mean and deviation of each channel.
        n_features_in_: columns of X in `fit` if it was a table, else channels.
    """

    classes_: NDArray[Any]

    def fit(self, X: Any, y: Any) -> Self:
        """Train on sequences and their classes.

        Args:
            X: (N, T, C); (N, T) of one channel; or a list of (T, C) or (T,), of any lengths.
            y: (N,) classes: integers, texts, ...

        Raises:
            ValueError: values are not finite, channels differ, or there are fewer than two classes.
        """
        rows = self._read(X, y)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        if self._continues():
            self._check_known(y)
        else:
            self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(f"y must have at least two classes, got 1 class: {self.classes_.tolist()[0]!r}")
        labels = np.searchsorted(self.classes_, y)
        self._fit_scale(rows)
        self._train(
            self._scaled(rows),
            labels,
            lambda **options: TrellisClassifier(self.n_channels_, num_classes=len(self.classes_), **options),
            lambda count, share, seed: folds(labels, count, share, seed),
        )
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class (N, classes), in the order of `classes_`."""
        check_is_fitted(self, "members_")
        logits = self._outputs(self._scaled(read_new(self, X)))
        shares = np.exp(logits - logits.max(-1, keepdims=True))
        mean: NDArray[np.float64] = (shares / shares.sum(-1, keepdims=True)).mean(0)
        return mean

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each sequence (N,)."""
        probabilities = self.predict_proba(X)
        found: NDArray[Any] = self.classes_[probabilities.argmax(1)]
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy.

        Raises:
            ValueError: y has a class that `fit` has not seen.
        """
        check_is_fitted(self, "members_")
        self._check_known(np.asarray(y))
        return float(super().score(X, y, sample_weight))

    def _check_known(self, y: NDArray[Any]) -> None:
        unseen = np.setdiff1d(y, self.classes_)
        if len(unseen):
            known = ", ".join(map(repr, self.classes_.tolist()))
            raise ValueError(
                f"y has the class {unseen.tolist()[0]!r}, which was not in training, only {known}: "
                "fit a new estimator on data with it"
            )


class TrellisSequenceRegressor(RegressorMixin, _SequenceEstimator):  # type: ignore[misc]
    """A regressor of sequences, with one or several values each.

    Inputs and targets are standardised inside; predictions are in the units of y, and those of all members are
    averaged. Arguments and attributes are those of `TrellisSequenceClassifier`, without the classes.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Train on sequences and their values.

        Args:
            X: (N, T, C); (N, T) of one channel; or a list of (T, C) or (T,), of any lengths.
            y: (N,) or (N, D).

        Raises:
            ValueError: values are not finite, or channels differ.
        """
        rows = self._read(X, y)
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        values = y.reshape(len(y), -1)
        if not self._continues():
            self.target_scale_, self.target_shape_ = Scale.of(values), y.shape[1:]
        elif self.target_shape_ != y.shape[1:]:
            raise ValueError(f"y must have the shape (N, *{self.target_shape_}) of the last fit, got {y.shape}")
        self._fit_scale(rows)
        self._train(
            self._scaled(rows),
            self.target_scale_.apply(values),
            lambda **options: TrellisRegressor(self.n_channels_, num_values=values.shape[1], **options),
            lambda count, share, seed: folds(np.zeros(len(values), dtype=np.int64), count, share, seed),
        )
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The values of each sequence, (N,) or (N, D) as in `fit`."""
        check_is_fitted(self, "members_")
        values = self._outputs(self._scaled(read_new(self, X))).mean(0)
        found = self.target_scale_.restore(values)
        return found.reshape(len(found), *self.target_shape_)
