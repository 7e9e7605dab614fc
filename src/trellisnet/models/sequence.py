"""TrellisClassifier and TrellisRegressor: what a sequence is, and what its value is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from typing_extensions import Unpack

from trellisnet.core.checks import positive_int, probability
from trellisnet.core.precision import without_autocast
from trellisnet.core.state import AnyState, TrellisState
from trellisnet.core.trellis import TrellisNet
from trellisnet.models.dropout import channel_mask, masked
from trellisnet.models.heads.base import affine, at_least_single, to_compute
from trellisnet.models.options import NetOptions, check_aux_weight, constructor_arguments
from trellisnet.models.pretrained import Pretrained

Lengths = Sequence[int] | Tensor | None


@dataclass
class SequenceOutput:
    """What a call of a classifier or regressor gives."""

    prediction: Tensor  # logits (B, classes); values (B, values), or (B, T, values) of every step
    loss: Tensor | None = None  # with targets
    parts: dict[str, Tensor] = field(default_factory=dict)  # what the loss is the sum of, cut from the graph
    state: TrellisState | None = None  # of a regressor of every step: to go on from, cut from the graph


class SequenceModel(Pretrained, ABC):
    """A trellis network and a linear map of its output: at the end of each sequence, or at every step."""

    each_step = False

    def __init__(
        self,
        config: dict[str, Any],
        values: int,
        net: NetOptions,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__(config)
        self.input_dropout = probability("input_dropout", config["input_dropout"])
        self.output_dropout = probability("output_dropout", config["output_dropout"])
        self.aux_weight = check_aux_weight(config["aux_weight"], net)
        self.net = TrellisNet(
            config["input_size"],
            config["hidden_size"],
            config["num_layers"],
            config["output_size"],
            device=device,
            dtype=dtype,
            **net,
        )
        self.readout = nn.Linear(self.net.output_size, values, device=device, dtype=dtype)

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
        state: AnyState | None = None,
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
            steps_first = masked(steps_first, channel_mask(steps_first, self.input_dropout))
        with_aux = self.training and targets is not None and bool(self.net.aux_every and self.aux_weight)
        tail = None if self.each_step else 1
        output, after, *aux = self.net(steps_first, state, lengths=lengths, tail=tail, depth=depth, aux=with_aux)
        mask = channel_mask(output, self.output_dropout) if self.training else None
        prediction = self._read_out(masked(output, mask))
        result = SequenceOutput(prediction, state=None if after is None else after.detach())
        if targets is not None:
            targets = self._check_targets(targets, prediction)
            steps = None if lengths is None or not self.each_step else _existing(lengths, x)
            parts = {"main": self._error(prediction, targets, steps)}
            if with_aux and len(aux[0]):
                errors = [self._error(self._read_out(masked(level, mask)), targets, steps) for level in aux[0]]
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


class TrellisClassifier(SequenceModel):
    """One label a sequence. Only the last step is read, and only the cells it needs are computed.

    Args:
        input_size, hidden_size, num_layers: of the trellis.
        num_classes: labels are 0 .. num_classes - 1.
        output_size: channels that the label is read from; default all of `hidden_size`.
        input_dropout, output_dropout: of channels, one mask a sequence.
        aux_weight: weight of the sum of the auxiliary losses, one every `aux_every` layers; default 0.05.
        net: further options of `TrellisNet`.

    >>> model = TrellisClassifier(input_size=3, hidden_size=16, num_layers=4, num_classes=5, dilation=[1, 2, 4, 8])
    >>> x, labels = torch.randn(2, 30, 3), torch.tensor([4, 0])
    >>> model(x, labels, lengths=[30, 12]).loss.backward()
    >>> tuple(model(x).prediction.shape)
    (2, 5)
    >>> model.predict(x).shape
    torch.Size([2])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        num_classes: int,
        output_size: int | None = None,
        *,
        input_dropout: float = 0.0,
        output_dropout: float = 0.0,
        aux_weight: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **net: Unpack[NetOptions],
    ) -> None:
        positive_int("num_classes", num_classes, minimum=2)
        super().__init__(constructor_arguments(locals()), num_classes, net, device, dtype)
        self.num_classes = num_classes

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


class TrellisRegressor(SequenceModel):
    """One or several values a sequence, or at every step of it; the loss is their mean squared error.

    Args:
        input_size, hidden_size, num_layers: of the trellis.
        num_values: how many.
        each_step: predict at every step, not only at the end. Then calls can be chained by their state.
        output_size: channels that the values are read from; default all of `hidden_size`.
        input_dropout, output_dropout: of channels, one mask a sequence.
        aux_weight: weight of the sum of the auxiliary losses, one every `aux_every` layers; default 0.05.
        net: further options of `TrellisNet`.

    >>> model = TrellisRegressor(input_size=3, hidden_size=16, num_layers=4, each_step=True)
    >>> x = torch.randn(2, 30, 3)
    >>> model(x, targets=x[..., :1], lengths=[30, 12]).loss.backward()
    >>> out = model(x)
    >>> out = model(torch.randn(2, 1, 3), state=out.state)  # the next step
    >>> tuple(out.prediction.shape)
    (2, 1, 1)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        num_values: int = 1,
        each_step: bool = False,
        output_size: int | None = None,
        *,
        input_dropout: float = 0.0,
        output_dropout: float = 0.0,
        aux_weight: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **net: Unpack[NetOptions],
    ) -> None:
        positive_int("num_values", num_values)
        super().__init__(constructor_arguments(locals()), num_values, net, device, dtype)
        self.each_step = bool(each_step)

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
