"""Classifiers and regressors of sequences, on any body; those named Trellis have a trellis network as theirs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from trellisnet.core.checks import boolean, positive_int
from trellisnet.core.options import TrellisOptions
from trellisnet.core.precision import without_autocast
from trellisnet.core.trellis import TrellisNet
from trellisnet.models.bodies import options_of
from trellisnet.models.body import State, check_body, detach, run_body
from trellisnet.models.dropout import channel_mask, masked
from trellisnet.models.heads.base import affine, at_least_single, to_compute
from trellisnet.models.options import SequenceOptions, aux_weight_for, split_options
from trellisnet.models.pretrained import BuildsItsBody, Pretrained

Lengths = Sequence[int] | Tensor | None


@dataclass
class SequenceOutput:
    """What a call of a classifier or regressor gives."""

    prediction: Tensor  # logits (B, classes); values (B, values), or (B, T, values) of every step
    loss: Tensor | None = None  # with targets
    parts: dict[str, Tensor] = field(default_factory=dict)  # what the loss is the sum of, cut from the graph
    state: State = None  # of a regressor of every step: to go on from, cut from the graph


class SequenceModel(Pretrained):
    """A body and a linear map of its output: at the end of each sequence, or at every step."""

    each_step = False

    def __init__(self, body: nn.Module, values: int, options: dict[str, Any]) -> None:
        super().__init__()
        (own,) = split_options(options, SequenceOptions)
        self.options = SequenceOptions(**own)
        self.net = check_body(body)
        self.aux_weight = aux_weight_for(body, self.options.aux_weight)
        place = next(body.parameters(), torch.empty(0))
        self.readout = nn.Linear(self.net.output_size, values, device=place.device, dtype=place.dtype)

    @abstractmethod
    def _check_targets(self, targets: Tensor, prediction: Tensor) -> Tensor:
        """Targets that fit the prediction, or an error that says what does not."""

    @abstractmethod
    def _error(self, prediction: Tensor, targets: Tensor, steps: Tensor | None) -> Tensor:
        """The loss of a prediction; `steps` (B, T) says which exist, None: all."""

    def forward(
        self,
        x: Tensor | PackedSequence,
        targets: Tensor | None = None,
        lengths: Lengths = None,
        state: State = None,
        *,
        depth: int | None = None,
    ) -> SequenceOutput:
        """Read sequences and predict.

        Args:
            x: (B, T, C), or a `PackedSequence`.
            targets: what should have been predicted; then the result has a loss.
            lengths: where the sequences end, if not all at T.
            state: what an earlier call returned, if x goes on from there; only a regressor of every step returns one.
            depth: number of layers; default `num_layers`.
        """
        if isinstance(x, PackedSequence):
            if lengths is not None:
                raise ValueError("lengths must not be given with a PackedSequence, which has its own")
            x, lengths = pad_packed_sequence(x, batch_first=True)
        if not isinstance(x, Tensor) or x.dim() != 3:
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"x must be (B, T, C) or a PackedSequence, got {got}")
        if not x.is_floating_point():
            raise TypeError(f"x must be of floating-point numbers, got {x.dtype}")
        steps_first = x.transpose(0, 1)
        if self.training:
            steps_first = masked(steps_first, channel_mask(steps_first, self.options.input_dropout))
        with_aux = self.training and targets is not None and bool(self.aux_weight)
        tail = None if self.each_step else 1
        out = run_body(self.net, steps_first, state, lengths=lengths, tail=tail, depth=depth, aux=with_aux)
        mask = channel_mask(out.output, self.options.output_dropout) if self.training else None
        prediction = self._read_out(masked(out.output, mask))
        result = SequenceOutput(prediction, state=detach(out.state))
        if targets is not None:
            targets = self._check_targets(targets, prediction)
            steps = None if lengths is None or not self.each_step else _existing(lengths, x)
            parts = {"main": self._error(prediction, targets, steps)}
            if out.aux is not None and len(out.aux):
                errors = [self._error(self._read_out(masked(level, mask)), targets, steps) for level in out.aux]
                parts["aux"] = self.aux_weight * torch.stack(errors).sum()
            result.loss = torch.stack(list(parts.values())).sum()
            result.parts = {name: part.detach() for name, part in parts.items()}
        return result

    def _read_out(self, output: Tensor) -> Tensor:
        """(T, B, D) to (B, T, values), or (1, B, D) to (B, values)."""
        with without_autocast(output.device.type):
            values = at_least_single(affine(to_compute(output), self.readout.weight, self.readout.bias))
        return values.transpose(0, 1) if self.each_step else values[0]


def _existing(lengths: Sequence[int] | Tensor, x: Tensor) -> Tensor:
    ends = torch.as_tensor(lengths, device=x.device)
    return torch.arange(x.shape[1], device=x.device) < ends[:, None]  # (B, T)


class SequenceClassifier(SequenceModel):
    """One label per sequence. Only the last step is read, and a trellis computes only the cells that it needs.

    Args:
        body: what follows `trellisnet.models.body`.
        num_classes: labels are 0 .. num_classes - 1.
        options: those of `SequenceOptions`.

    >>> from trellisnet.baselines.rnn import GruBody
    >>> model = SequenceClassifier(GruBody(3, hidden_size=16), num_classes=5)
    >>> model.predict(torch.randn(2, 30, 3), lengths=[30, 12]).shape
    torch.Size([2])
    """

    def __init__(self, body: nn.Module, num_classes: int, **options: Any) -> None:
        count = positive_int("num_classes", num_classes, minimum=2)
        super().__init__(body, count, options)
        self.num_classes = count

    def _arguments(self) -> dict[str, Any]:
        return {"num_classes": self.num_classes, **vars(self.options)}

    def predict(self, x: Tensor | PackedSequence, lengths: Lengths = None) -> Tensor:
        """The most probable label of each sequence (B), without dropout."""
        with self.reading():
            labels: Tensor = self(x, lengths=lengths).prediction.argmax(dim=1)
            return labels

    def _check_targets(self, targets: Tensor, prediction: Tensor) -> Tensor:
        if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.shape != prediction.shape[:1]:
            got = f"{targets.dtype} {tuple(targets.shape)}" if isinstance(targets, Tensor) else type(targets).__name__
            raise ValueError(f"targets must be {len(prediction)} integer labels, one a sequence, got {got}")
        if targets.device.type == "cpu" and not torch.compiler.is_compiling():
            wrong = targets[(targets < 0) | (targets >= self.num_classes)]
            if len(wrong):
                raise ValueError(f"targets must lie in 0 .. {self.num_classes - 1}, got {int(wrong[0])}")
        return targets.long()

    def _error(self, prediction: Tensor, targets: Tensor, steps: Tensor | None) -> Tensor:
        return F.cross_entropy(prediction, targets)


class SequenceRegressor(SequenceModel):
    """One or several values per sequence, or at every step of it; the loss is their mean squared error.

    Args:
        body: what follows `trellisnet.models.body`.
        num_values: how many.
        each_step: predict at every step, not only at the end. Then calls can be chained by their state.
        options: those of `SequenceOptions`.
    """

    def __init__(self, body: nn.Module, num_values: int = 1, each_step: bool = False, **options: Any) -> None:
        super().__init__(body, positive_int("num_values", num_values), options)
        self.each_step = boolean("each_step", each_step)

    def _arguments(self) -> dict[str, Any]:
        return {"num_values": self.readout.out_features, "each_step": self.each_step, **vars(self.options)}

    def predict(self, x: Tensor | PackedSequence, lengths: Lengths = None) -> Tensor:
        """The values, as `prediction` of a call has them, without dropout."""
        with self.reading():
            values: Tensor = self(x, lengths=lengths).prediction
            return values

    def _check_targets(self, targets: Tensor, prediction: Tensor) -> Tensor:
        expected = tuple(prediction.shape)
        if not isinstance(targets, Tensor) or not targets.is_floating_point():
            kind = str(targets.dtype) if isinstance(targets, Tensor) else type(targets).__name__
            raise TypeError(f"targets must be a floating-point tensor of shape {expected}, got {kind}")
        if expected[-1] == 1 and targets.shape == expected[:-1]:
            targets = targets.unsqueeze(-1)
        if targets.shape != expected:
            raise ValueError(f"targets must have the shape {expected}, got {tuple(targets.shape)}")
        return targets

    def _error(self, prediction: Tensor, targets: Tensor, steps: Tensor | None) -> Tensor:
        if steps is not None:
            prediction, targets = prediction[steps], targets[steps]
        return F.mse_loss(prediction, targets.to(prediction.dtype))


class TrellisClassifier(SequenceClassifier, BuildsItsBody):
    """One label per sequence, by a trellis network.

    Args:
        input_size, hidden_size, num_layers: of the trellis.
        num_classes: labels are 0 .. num_classes - 1.
        output_size: channels that the label is read from; default all of `hidden_size`.
        device, dtype: of the weights; default torch's.
        options: further ones of `SequenceOptions` and `TrellisOptions`.

    >>> model = TrellisClassifier(input_size=3, hidden_size=16, num_layers=4, num_classes=5, dilation=[1, 2, 4, 8])
    >>> x, labels = torch.randn(2, 30, 3), torch.tensor([4, 0])
    >>> model(x, labels, lengths=[30, 12]).loss.backward()
    >>> tuple(model(x).prediction.shape)
    (2, 5)
    >>> model.predict(x).shape
    torch.Size([2])
    """

    net: TrellisNet

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        num_classes: int,
        output_size: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        own, net = split_options(options, SequenceOptions, TrellisOptions)
        positive_int("num_classes", num_classes, minimum=2)
        body = TrellisNet(input_size, hidden_size, num_layers, output_size, device=device, dtype=dtype, **net)
        super().__init__(body, num_classes, **own)

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "input_size": self.net.input_size, **options_of(self.net)}


class TrellisRegressor(SequenceRegressor, BuildsItsBody):
    """One or several values per sequence, or at every step of it, by a trellis network.

    Args:
        input_size, hidden_size, num_layers: of the trellis.
        num_values: how many.
        each_step: predict at every step, not only at the end. Then calls can be chained by their state.
        output_size: channels that the values are read from; default all of `hidden_size`.
        device, dtype: of the weights; default torch's.
        options: further ones of `SequenceOptions` and `TrellisOptions`.

    >>> model = TrellisRegressor(input_size=3, hidden_size=16, num_layers=4, each_step=True)
    >>> x = torch.randn(2, 30, 3)
    >>> model(x, targets=x[..., :1], lengths=[30, 12]).loss.backward()
    >>> out = model(x)
    >>> out = model(torch.randn(2, 1, 3), state=out.state)  # the next step
    >>> tuple(out.prediction.shape)
    (2, 1, 1)
    """

    net: TrellisNet

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        num_values: int = 1,
        each_step: bool = False,
        output_size: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        own, net = split_options(options, SequenceOptions, TrellisOptions)
        body = TrellisNet(input_size, hidden_size, num_layers, output_size, device=device, dtype=dtype, **net)
        super().__init__(body, num_values, each_step, **own)

    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments(), "input_size": self.net.input_size, **options_of(self.net)}
