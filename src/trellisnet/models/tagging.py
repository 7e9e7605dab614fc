"""Taggers: one class per step of a sequence, on any body."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.core.checks import positive_int
from trellisnet.models.bidirectional import Lengths
from trellisnet.models.sequence_model import Readable, SequenceModel


class SequenceTagger(SequenceModel):
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

    def __init__(self, body: nn.Module, num_classes: int, **options: Any) -> None:
        count = positive_int("num_classes", num_classes, minimum=2)
        super().__init__(body, count, options)
        self.num_classes = count

    def _arguments(self) -> dict[str, Any]:
        return {"num_classes": self.num_classes, **vars(self.options)}

    def predict(self, x: Readable, lengths: Lengths = None) -> Tensor:
        """Return the most probable label of each step (B, T), without dropout; x may be a NumPy array."""
        return self._predict(x, lengths).argmax(dim=2)

    def _check_targets(self, targets: Tensor, prediction: Tensor) -> Tensor:
        expected = tuple(prediction.shape[:2])
        if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.shape != expected:
            got = f"{targets.dtype} {tuple(targets.shape)}" if isinstance(targets, Tensor) else type(targets).__name__
            raise ValueError(f"targets must be integer labels of shape {expected}, one per step, got {got}")
        if targets.device.type == "cpu" and not torch.compiler.is_compiling():
            wrong = targets[(targets < 0) | (targets >= self.num_classes)]
            if len(wrong):
                raise ValueError(f"targets must lie in 0 .. {self.num_classes - 1}, got {int(wrong[0])}")
        return targets.long()

    def _loss(self, prediction: Tensor, targets: Tensor, inside: Tensor | None) -> Tensor:
        if inside is not None:
            prediction, targets = prediction[inside], targets[inside]
        return F.cross_entropy(prediction.flatten(0, -2), targets.flatten())
