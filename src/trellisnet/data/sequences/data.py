"""What a dataset of sequences is to the rest of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.batches import ItemBatches, Items
from trellisnet.data.checks import pick


@dataclass(frozen=True)
class Scale:
    """How values were standardised: (value - mean) / deviation, each channel for itself."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Scale:
        """That which gives values (N, C) mean 0 and deviation 1; a channel that never changes is only moved."""
        deviation = values.std(axis=0)
        return cls(values.mean(axis=0), np.where(deviation > 0, deviation, 1.0))

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Values (..., C) as a model reads them."""
        return ((values - self.mean) / self.deviation).astype(np.float32)

    def restore(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Values (..., C) in their own units."""
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
        targets: columns of the numbers to be predicted.
        series: column that tells which series a row belongs to.
        time: column that tells the order of the rows of a series.
        window: of forecasting: steps that are read.
        horizon: of forecasting: steps that are predicted.
    """

    values: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    series: str | None = None
    time: str | None = None
    window: int | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        for name in ("values", "targets"):  # JSON knows no tuples
            object.__setattr__(self, name, tuple(getattr(self, name)))


@dataclass(frozen=True)
class SequenceData:
    """Sequences and what is to be said of each.

    Attributes:
        name: of the dataset.
        task: "classification" of a whole sequence; "regression" of one or several numbers from a whole sequence, of
            which forecasting is a case; or "tokens", an answer at each step.
        input_size: channels of each step; of "tokens": how many different ones there are.
        output_size: classes, or numbers to be predicted.
        splits: the sequences, by "train", "valid" and "test", as far as there are.
        note: what someone who reads results on this data should know.
        labels: the names of the classes.
        input_scale, target_scale: how the values were standardised, if they were.
        each_step: of "regression": there are targets (B, T, D) at every step, not only (B, D) of the whole.
        form: how the user's own file was read, to read others in the same way.
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

    def facts(self) -> dict[str, Any]:
        """All but the sequences themselves, in types that JSON knows."""
        plain = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "splits"}
        scales = {name: plain[name] and plain[name].facts() for name in ("input_scale", "target_scale")}
        return {**plain, **scales, "labels": list(self.labels), "form": asdict(self.form)}

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
        """Sequences of a split in batches; see `ItemBatches`."""
        return ItemBatches(
            pick("split", split, self.splits),
            batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
        )
