"""What all models of sequences share: a body, a read-out and a loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from trellisnet.core.precision import without_autocast
from trellisnet.models.bidirectional import Lengths, run_both, run_both_depths, twin_of
from trellisnet.models.body import BodyOutput, State, at_ends, check_body, detach, register_output
from trellisnet.models.distributions import spread_for
from trellisnet.models.dropout import channel_mask, masked
from trellisnet.models.heads.base import affine, at_least_single, to_compute
from trellisnet.models.options import SequenceOptions, aux_weight_for, split_options
from trellisnet.models.pooling import Pooling
from trellisnet.models.pretrained import Pretrained
from trellisnet.models.reconstruction import reconstruction_for

Readable = Tensor | PackedSequence | NDArray[Any]  # what `predict` reads


@dataclass
class SequenceOutput:
    """The result of a call of a classifier, regressor or labeller.

    Attributes:
        prediction: logits (B, classes); values (B, values), or (B, T, values) with `each_step`; logits (B, T, labels)
            or (B, T, classes). With `quantiles` or `distribution`, each value has a further dimension of quantiles, or
            of the distribution's parameters.
        loss: with targets.
        parts: the terms of the loss by name, detached.
        state: with `each_step`, and of a labeller: the state after the sequences, detached.
    """

    prediction: Tensor
    loss: Tensor | None = None
    parts: dict[str, Tensor] = field(default_factory=dict)
    state: State = None


register_output(SequenceOutput)


class SequenceModel(Pretrained):
    """A body and a linear map of its output: at every step, or of a summary of each sequence, by default its last step.

    A bidirectional model has a second body, `reverse`, which reads the sequences backwards.
    """

    each_step = False
    spreads = False  # whether `quantiles` and `distribution` apply

    def __init__(self, body: nn.Module, values: int, options: dict[str, Any]) -> None:
        super().__init__()
        (own,) = split_options(options, SequenceOptions)
        self.options = SequenceOptions(**own)
        self.net = check_body(body)
        self.reverse = twin_of(body) if self.options.bidirectional else None
        self.aux_weight = aux_weight_for(body, self.options.aux_weight)
        place = next(body.parameters(), torch.empty(0))
        where: dict[str, Any] = {"device": place.device, "dtype": place.dtype}
        features = self.net.output_size * (1 if self.reverse is None else 2)
        for name in ("quantiles", "distribution"):
            if not self.spreads and (chosen := getattr(self.options, name)) is not None:
                raise ValueError(f"{name} belongs to regressors, got {chosen!r} for a {type(self).__name__}")
        self.spread = spread_for(self.options, values, where)
        self.readout = nn.Linear(features, values * (1 if self.spread is None else self.spread.size), **where)
        if self.each_step and self.options.readout != "last":
            got = f"{self.options.readout!r} for a {type(self).__name__} of every step"
            raise ValueError(f"readout belongs to models with one answer per sequence, got {got}")
        self.pooling = None if self.options.readout == "last" else Pooling(self.options.readout, features, **where)
        self.reconstruction = reconstruction_for(self.net, self.options, where)

    @abstractmethod
    def _check_targets(self, targets: Tensor, prediction: Tensor) -> Tensor:
        """Return the targets in the dtype and shape of the loss, or raise an error that names what is wrong."""

    @abstractmethod
    def _loss(self, prediction: Tensor, targets: Tensor, inside: Tensor | None) -> Tensor:
        """Return the loss of a prediction; `inside` (B, T) is False at padding; None: no padding."""

    def forward(
        self,
        x: Tensor | PackedSequence,
        targets: Tensor | None = None,
        lengths: Lengths = None,
        state: State = None,
        *,
        depth: int | None = None,
    ) -> SequenceOutput:
        """Read sequences and predict; with targets, also compute the loss.

        Args:
            x: (B, T, C), or a `PackedSequence`.
            targets: labels (B) of a classifier; otherwise values or labels in the shape of the prediction.
            lengths: the length of each sequence; default T.
            state: the state that the call on the preceding steps returned; only a labeller and a regressor with
                `each_step` return one.
            depth: number of layers; default the body's own. Not every body accepts it.
        """
        x, lengths = _padded(x, lengths)
        steps_first = read = x.transpose(0, 1)
        learns = self.training and targets is not None
        if self.training:
            read = masked(read, channel_mask(read, self.options.input_dropout))
        reconstruction = self.reconstruction if learns else None
        options: dict[str, Any] = {"lengths": lengths, "depth": depth, "aux": learns and bool(self.aux_weight)}
        if reconstruction is None:
            out = run_both(self.net, self.reverse, read, state, tail=self._steps, **options)
        else:
            out = run_both(self.net, self.reverse, read, state, **options)
            told = reconstruction(steps_first, out.output, None if lengths is None else torch.as_tensor(lengths))
            out = out if self._steps is None else at_ends(out, lengths)
        if self.pooling is not None:
            out = self.pooling.pooled(out, lengths)
        mask = channel_mask(out.output, self.options.output_dropout) if self.training else None
        prediction = self._read_out(masked(out.output, mask))
        result = SequenceOutput(prediction, state=detach(out.state))
        if targets is not None:
            targets = self._check_targets(targets, prediction)
            inside = None if lengths is None or not self.each_step else _not_padding(lengths, x)
            parts = {"main": self._loss(prediction, targets, inside)}
            if out.aux is not None and len(out.aux):
                aux = [self._loss(self._read_out(masked(level, mask)), targets, inside) for level in out.aux]
                parts["aux"] = self.aux_weight * torch.stack(aux).sum()
            if reconstruction is not None:
                parts["reconstruction"] = self.options.reconstruct_weight * told
            result.loss = torch.stack(list(parts.values())).sum()
            result.parts = {name: part.detach() for name, part in parts.items()}
        return result

    def at_depths(
        self, depths: Sequence[int], x: Tensor | PackedSequence, targets: Tensor | None = None, lengths: Lengths = None
    ) -> list[SequenceOutput]:
        """Read sequences without dropout and predict at several depths, in one pass; the arguments are those of a call.

        Raises:
            ValueError: there are several depths, and the body does not give them in one pass.
        """
        with self.reading():
            x, lengths = _padded(x, lengths)
            options: dict[str, Any] = {"depths": depths, "lengths": lengths, "tail": self._steps}
            outputs = run_both_depths(self.net, self.reverse, x.transpose(0, 1), **options)
            if self.pooling is not None:
                outputs = [self.pooling(output, lengths) for output in outputs]
            results = [SequenceOutput(self._read_out(output)) for output in outputs]
            if targets is not None:
                inside = None if lengths is None or not self.each_step else _not_padding(lengths, x)
                for result in results:
                    checked = self._check_targets(targets, result.prediction)
                    result.loss = self._loss(result.prediction, checked, inside)
            return results

    def _predict(self, x: Readable, lengths: Lengths) -> Tensor:
        """Return the prediction for a tensor, a `PackedSequence` or a NumPy array, without dropout."""
        if isinstance(x, np.ndarray):
            if x.dtype.kind not in "fiu":
                raise TypeError(f"x must be an array of numbers, got {x.dtype}")
            x = torch.from_numpy(np.array(x)).to(self.readout.weight)  # a copy: torch warns about read-only arrays
        with self.reading():
            prediction: Tensor = self(x, lengths=lengths).prediction
            return prediction

    @property
    def _steps(self) -> int | None:
        """The number of last steps of the body's output that are read; None: all."""
        return None if self.each_step or self.pooling is not None else 1

    def wanted_steps(self, steps: int) -> int | None:
        """How many of the last steps of a sequence of n steps are read; None: all."""
        return self._steps

    def answer(self, output: Tensor, lengths: Lengths = None) -> Tensor:
        """The prediction from the body's output at all steps (T, B, D), which models with the same body can share."""
        if self.pooling is not None:
            return self._read_out(self.pooling(output, lengths))
        return self._read_out(output if self.each_step else at_ends(BodyOutput(output, None), lengths).output)

    def loss_of(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """The loss of a prediction without padding."""
        return self._loss(prediction, self._check_targets(targets, prediction), None)

    def _read_out(self, output: Tensor) -> Tensor:
        """Map an output (T, B, D) to (B, T, values), or a summary (1, B, D) to (B, values)."""
        with without_autocast(output.device.type):
            values = at_least_single(affine(to_compute(output), self.readout.weight, self.readout.bias))
        values = self.shaped(values)
        return values.transpose(0, 1) if self.each_step else values[0]

    def shaped(self, values: Tensor) -> Tensor:
        """The prediction at each step, from the readout's numbers (..., N)."""
        if self.spread is None:
            return values
        shaped: Tensor = self.spread(values)
        return shaped


def _padded(x: Tensor | PackedSequence, lengths: Lengths) -> tuple[Tensor, Lengths]:
    """Check sequences; return them as (B, T, C), with their lengths."""
    if isinstance(x, PackedSequence):
        if lengths is not None:
            raise ValueError("lengths must not be given with a PackedSequence, which has its own")
        x, lengths = pad_packed_sequence(x, batch_first=True)
    if not isinstance(x, Tensor) or x.dim() != 3:
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x must be (B, T, C) or a PackedSequence, got {got}")
    if not x.is_floating_point():
        raise TypeError(f"x must be of floating-point numbers, got {x.dtype}")
    return x, lengths


def _not_padding(lengths: Sequence[int] | Tensor, x: Tensor) -> Tensor:
    ends = torch.as_tensor(lengths, device=x.device)
    return torch.arange(x.shape[1], device=x.device) < ends[:, None]  # (B, T)
