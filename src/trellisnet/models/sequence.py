"""Classifiers, taggers, regressors and labellers of sequences, on any body."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.core.checks import boolean, positive_int
from trellisnet.models.bidirectional import Lengths
from trellisnet.models.sequence_model import Readable, SequenceModel


class ModelOfClasses(SequenceModel):
    """What models of one class have in common, whether it is that of a sequence or of a step.

    Args:
        body: a module that follows the protocol in `trellisnet.models.body`.
        num_classes: labels are 0 .. num_classes - 1.
        options: those of `SequenceOptions`.
    """

    def __init__(self, body: nn.Module, num_classes: int, **options: Any) -> None:
        count = positive_int("num_classes", num_classes, minimum=2)
        super().__init__(body, count, options)
        self.num_classes = count

    def _arguments(self) -> dict[str, Any]:
        return {"num_classes": self.num_classes, **vars(self.options)}

    def predict(self, x: Readable, lengths: Lengths = None) -> Tensor:
        """Return the most probable label of each sequence (B) or step (B, T), without dropout; x may be an array."""
        return self._predict(x, lengths).argmax(-1)

    def _check_targets(self, targets: Tensor, prediction: Tensor) -> Tensor:
        expected, each = tuple(prediction.shape[:-1]), "step" if self.each_step else "sequence"
        if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.shape != expected:
            got = f"{targets.dtype} {tuple(targets.shape)}" if isinstance(targets, Tensor) else type(targets).__name__
            raise ValueError(f"targets must be integer labels of shape {expected}, one per {each}, got {got}")
        if targets.device.type == "cpu" and not torch.compiler.is_compiling():
            wrong = targets[(targets < 0) | (targets >= self.num_classes)]
            if len(wrong):
                raise ValueError(f"targets must lie in 0 .. {self.num_classes - 1}, got {int(wrong[0])}")
        return targets.long()

    def _loss(self, prediction: Tensor, targets: Tensor, inside: Tensor | None) -> Tensor:
        if inside is not None:
            prediction, targets = prediction[inside], targets[inside]
        return F.cross_entropy(prediction.flatten(0, -2), targets.flatten())


class SequenceClassifier(ModelOfClasses):
    """A classifier with one label per sequence.

    By default it reads the last step only. A body that accepts `tail` can then compute less: a trellis computes the
    cells that this step needs.

    Args:
        body: a module that follows the protocol in `trellisnet.models.body`.
        num_classes: labels are 0 .. num_classes - 1.
        options: those of `SequenceOptions`.

    >>> from trellisnet.baselines.rnn import GruBody
    >>> model = SequenceClassifier(GruBody(3, hidden_size=16), num_classes=5)
    >>> model.predict(torch.randn(2, 30, 3), lengths=[30, 12]).shape
    torch.Size([2])
    """


class SequenceTagger(ModelOfClasses):
    """A classifier of every step.

    The loss is the cross entropy in nats, averaged over the steps that are not padding. Calls return a state to
    continue from, unless the tagger is bidirectional.

    Args:
        body: a module that follows the protocol in `trellisnet.models.body`.
        num_classes: labels are 0 .. num_classes - 1.
        options: those of `SequenceOptions`.

    >>> from trellisnet.baselines.rnn import GruBody
    >>> model = SequenceTagger(GruBody(3, hidden_size=16), num_classes=4, bidirectional=True)
    >>> x, labels = torch.randn(2, 30, 3), torch.randint(4, (2, 30))
    >>> model(x, labels, lengths=[30, 12]).loss.backward()
    >>> tuple(model.predict(x).shape)
    (2, 30)
    """

    each_step = True


class SequenceRegressor(SequenceModel):
    """A regressor with one or several values per sequence or per step; the loss is the mean squared error.

    Targets that are NaN are missing: the loss is the mean over the others.

    With `quantiles` or `distribution` it predicts how uncertain each value is, see `trellisnet.models.distributions`.

    Args:
        body: a module that follows the protocol in `trellisnet.models.body`.
        num_values: number of values.
        each_step: predict at every step instead of the last one only. Calls then return a state to continue from.
        options: those of `SequenceOptions`.
    """

    spreads = True

    def __init__(self, body: nn.Module, num_values: int = 1, each_step: bool = False, **options: Any) -> None:
        self.each_step = boolean("each_step", each_step)
        super().__init__(body, positive_int("num_values", num_values), options)
        self.num_values = num_values

    def _arguments(self) -> dict[str, Any]:
        return {"num_values": self.num_values, "each_step": self.each_step, **vars(self.options)}

    def predict(self, x: Readable, lengths: Lengths = None) -> Tensor:
        """Return the values in the shape of a call's `prediction`, without dropout; x may be a NumPy array.

        With `quantiles` or `distribution`, return quantiles (..., values, levels): those of the option, or 0.1, 0.5 and
        0.9.
        """
        prediction = self._predict(x, lengths)
        return prediction if self.spread is None else self.spread.quantiles(prediction)

    def _check_targets(self, targets: Tensor, prediction: Tensor) -> Tensor:
        expected = tuple(prediction.shape if self.spread is None else prediction.shape[:-1])
        if not isinstance(targets, Tensor) or not targets.is_floating_point():
            kind = str(targets.dtype) if isinstance(targets, Tensor) else type(targets).__name__
            raise TypeError(f"targets must be a floating-point tensor of shape {expected}, got {kind}")
        if expected[-1] == 1 and targets.shape == expected[:-1]:
            targets = targets.unsqueeze(-1)
        if targets.shape != expected:
            raise ValueError(f"targets must have the shape {expected}, got {tuple(targets.shape)}")
        return targets

    def _loss(self, prediction: Tensor, targets: Tensor, inside: Tensor | None) -> Tensor:
        if inside is not None:
            prediction, targets = prediction[inside], targets[inside]
        missing = targets.isnan()
        if self.spread is None:
            loss = F.mse_loss(prediction, torch.where(missing, prediction.detach(), targets.to(prediction.dtype)))
        else:
            each = self.spread.loss(prediction, torch.where(missing, 0, targets).to(prediction.dtype))
            loss = torch.where(missing, 0, each).mean()
        return loss * (missing.numel() / (~missing).sum().clamp(min=1))


class SequenceLabeller(SequenceModel):
    """A model of independent yes-or-no labels at every step, such as the notes of the next chord.

    The loss is the negative log-likelihood in nats: the sum over the labels, averaged over the steps. Calls return a
    state to continue from.

    Args:
        body: a module that follows the protocol in `trellisnet.models.body`.
        num_labels: number of labels.
        options: those of `SequenceOptions`.

    >>> from trellisnet.baselines.rnn import GruBody
    >>> model = SequenceLabeller(GruBody(88, hidden_size=16), num_labels=88)
    >>> notes = torch.rand(2, 30, 88).round()
    >>> model(notes[:, :-1], notes[:, 1:], lengths=[29, 12]).loss.backward()
    >>> tuple(model.predict(notes).shape)
    (2, 30, 88)
    """

    each_step = True

    def __init__(self, body: nn.Module, num_labels: int, **options: Any) -> None:
        super().__init__(body, positive_int("num_labels", num_labels), options)

    def _arguments(self) -> dict[str, Any]:
        return {"num_labels": self.readout.out_features, **vars(self.options)}

    def predict(self, x: Readable, lengths: Lengths = None) -> Tensor:
        """Return the probability of each label at each step (B, T, labels), without dropout; x may be a NumPy array."""
        return self._predict(x, lengths).sigmoid()

    def _check_targets(self, targets: Tensor, prediction: Tensor) -> Tensor:
        expected = tuple(prediction.shape)
        if not isinstance(targets, Tensor) or targets.shape != expected:
            got = tuple(targets.shape) if isinstance(targets, Tensor) else type(targets).__name__
            raise ValueError(f"targets must be labels of shape {expected}, got {got}")
        if targets.device.type == "cpu" and not torch.compiler.is_compiling():
            wrong = targets[(targets != 0) & (targets != 1)]
            if len(wrong):
                raise ValueError(f"targets must be 0 or 1, got {wrong[0].item()}")
        return targets

    def _loss(self, prediction: Tensor, targets: Tensor, inside: Tensor | None) -> Tensor:
        if inside is not None:
            prediction, targets = prediction[inside], targets[inside]
        nll = F.binary_cross_entropy_with_logits(prediction, targets.to(prediction.dtype), reduction="none")
        return nll.sum(-1).mean()
