"""The interface of a dataset of sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.batches import ItemBatches, Items
from trellisnet.data.checks import pick
from trellisnet.data.sequences.filling import MASKED


@dataclass(frozen=True)
class Scale:
    """A standardisation of values: (value - mean) / deviation, per channel."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Scale:
        """Return the scale that standardises each channel of values (N, C); a constant channel is only shifted.

        NaN is no value; a channel without values stays as it is.
        """
        missing = np.isnan(values)
        if missing.any():
            count = (~missing).sum(axis=0).clip(1)
            mean = np.where(missing, 0, values).sum(axis=0) / count
            deviation = np.sqrt(np.where(missing, 0, np.square(values - mean)).sum(axis=0) / count)
        else:
            mean, deviation = values.mean(axis=0), values.std(axis=0)
        return cls(mean, np.where(deviation > 0, deviation, 1.0))

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Standardise values (..., C)."""
        return ((values - self.mean) / self.deviation).astype(np.float32)

    def restore(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Convert standardised values (..., C) back to their own units."""
        return values * self.deviation + self.mean

    def facts(self) -> dict[str, list[float]]:
        """In types that JSON knows."""
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Scale:
        """What `facts` told."""
        return cls(np.asarray(facts["mean"], dtype=np.float64), np.asarray(facts["deviation"], dtype=np.float64))


@dataclass(frozen=True)
class SeriesForm:
    """How series were read from a file, so that others can be read in the same way.

    Attributes:
        values: columns of what is read at each step; none: the file has arrays.
        targets: columns of the numbers to be predicted; in forecasting some of `values`, none: all of them.
        series: column that tells which series a row belongs to.
        time: column that tells the order of the rows of a series.
        window: of forecasting: steps that are read.
        horizon: of forecasting: steps that are predicted.
        future: of forecasting: those of `values` that are known ahead; they are read `horizon` steps ahead.
        season: of forecasting: steps after which the series repeats, for the seasonal naive forecast.
        time_format: how times are written, if not as numbers or ISO dates.
        fill: how gaps and missing values are filled. If they are masked, models read each channel and its marks.
        step, step_unit: the time between two rows, see `Step`.
        separator, decimal, encoding: how a CSV file is written, see `Dialect`.
        label: of tagging: column of the label of each row.
    """

    values: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    series: str | None = None
    time: str | None = None
    window: int | None = None
    horizon: int | None = None
    future: tuple[str, ...] = ()
    season: int | None = None
    time_format: str | None = None
    fill: str | None = None
    step: float | None = None
    step_unit: str | None = None
    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        for name in ("values", "targets", "future"):  # JSON knows no tuples
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def predicted(self, channels: int) -> list[int]:
        """Of forecasting: the channels that are predicted, of all `channels`."""
        return [self.values.index(name) for name in self.targets] or list(range(channels))

    @property
    def masked(self) -> bool:
        """Whether missing values are NaN until a model reads them, with marks."""
        return self.fill == MASKED

    @property
    def known_ahead(self) -> list[int]:
        """Of forecasting: the channels of `future`."""
        return [self.values.index(name) for name in self.future]


@dataclass(frozen=True)
class SequenceData:
    """Sequences and their targets.

    Attributes:
        name: name of the dataset.
        task: "classification" of whole sequences; "tagging", one class per step; "regression" of one or several numbers
            per sequence, which includes forecasting; "labels", independent yes-or-no labels at every step; or "tokens",
            one target token per step.
        input_size: number of channels; for "tokens", the size of the vocabulary.
        output_size: number of classes, of labels, of tokens, or of numbers to predict.
        splits: the sequences of the splits that exist: "train", "valid", "test".
        note: facts that readers of results on this data need.
        labels: names of the classes or labels.
        input_scale, target_scale: the standardisation of inputs and targets, if there is one.
        each_step: of "regression": targets (B, T, D) at every step, not only (B, D) of the whole sequence.
        form: how the user's own file was read, to read others in the same way.
        ahead: the targets are later inputs, so that a model must not read the sequences backwards.
    """

    name: str
    task: str
    input_size: int
    output_size: int
    splits: Mapping[str, Items]
    note: str = ""
    labels: tuple[str, ...] = ()
    input_scale: Scale | None = None
    target_scale: Scale | None = None
    each_step: bool = False
    form: SeriesForm = SeriesForm()
    ahead: bool = False

    @property
    def channels(self) -> int:
        """The number of channels without those that mark missing values."""
        return self.input_size // 2 if self.form.masked else self.input_size

    def facts(self) -> dict[str, Any]:
        """All but the sequences themselves, in types that JSON knows."""
        plain = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "splits"}
        scales = {name: plain[name] and plain[name].facts() for name in ("input_scale", "target_scale")}
        form = asdict(self.form)
        if form["label"] is None:  # facts that runs of earlier versions have too have the same fingerprints
            del form["label"]
        return {**plain, **scales, "labels": list(self.labels), "form": form}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> SequenceData:
        """What `facts` told, without sequences."""
        scales = {name: facts[name] and Scale.from_facts(facts[name]) for name in ("input_scale", "target_scale")}
        labels, form = tuple(facts["labels"]), SeriesForm(**facts["form"])
        return cls(**{**facts, **scales, "labels": labels, "form": form, "splits": {}})

    def batches(
        self,
        split: str,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ) -> ItemBatches:
        """Return the batches of a split; see `ItemBatches`."""
        return ItemBatches(
            pick("split", split, self.splits),
            batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
        )
