"""What the estimators have in common: their options, and an ensemble of small trellis networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from trellisnet.core.checks import boolean, one_of, positive, positive_int
from trellisnet.data.sequences.data import Scale
from trellisnet.data.sequences.given import GivenItems, padded
from trellisnet.integrations.sklearn.inputs import Rows
from trellisnet.integrations.sklearn.members import EVALUATION_BATCH, Member, Split, Trained, choose, train
from trellisnet.models.options import READOUTS
from trellisnet.models.sequence_model import SequenceModel
from trellisnet.training.config import TrainingConfig
from trellisnet.training.distribution import choose_device

SMALL = 1000  # sequences; with more, one member is enough, and training is long enough without a second
MOST_LAYERS = 10
STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 1000, 20, 400  # of training
STEPS_BETWEEN = 10  # evaluations, at least
Build = Callable[..., SequenceModel]  # from the options of a trellis network


class TrellisEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An ensemble of small trellis networks: the options, training and prediction of all estimators."""

    members_: list[Any]
    n_channels_: int
    _bidirectional = True  # unless `model_options` says otherwise

    def __init__(
        self,
        *,
        hidden_size: int = 32,
        num_layers: int | None = None,
        readout: str = "auto",
        members: int | None = None,
        max_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = 3e-3,
        validation_fraction: float = 0.2,
        patience: int = 15,
        model_options: Mapping[str, Any] | None = None,
        warm_start: bool = False,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.readout = readout
        self.members = members
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.model_options = model_options
        self.warm_start = warm_start
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _continues(self) -> bool:
        return boolean("warm_start", self.warm_start) and hasattr(self, "members_")

    def _train(
        self,
        rows: Rows,
        targets: NDArray[Any],
        build: Build,
        split: Callable[[int, float, int], Sequence[Split]],
    ) -> None:
        """Train the members on standardised sequences.

        Args:
            rows: the sequences (T, C).
            targets: labels (N,) or values (N, D).
            build: builds a model from its options.
            split: the rows to train on and those held out, per member; from the number of members, the share that is
                held out, and a seed.
        """
        share = positive("validation_fraction", self.validation_fraction)
        if share >= 1:
            raise ValueError(f"validation_fraction must be below 1, got {share}")
        if not self._continues():  # else the same rows stay held out
            self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        seed = self.seed_
        device = str(choose_device(self.device, option="device"))
        before = self.members_ if self._continues() else None
        count = len(before) if before else self._chosen("members", self._default_members(len(rows)))
        readout = one_of("readout", self.readout, ("auto", *READOUTS))
        found: list[Trained] = []
        with self._threads(), torch.random.fork_rng(devices=[]):
            for number, parts in enumerate(split(count, share, seed)):
                torch.manual_seed(seed + number)
                kept, held = (GivenItems([rows[i] for i in part], targets[part]) for part in parts)
                if before is not None:
                    starts = [[before[number]]]
                else:
                    chosen = [(readout,)] if readout != "auto" else [READOUTS[:1], READOUTS[1:]]
                    starts = [[build(readout=each, **self._options(rows)) for each in some] for some in chosen]
                config = self._config(len(kept), seed + number, device)
                say = partial(self._say, 2, f"member {number + 1} of {count}, ")
                trained = [each for some in starts for each in train(Member(some).to(device), kept, held, config, say)]
                for each in trained:
                    told = f"read-out {each.model.options.readout}, {each.epochs} epochs, held-out loss {each.loss:.4f}"
                    self._say(1, f"member {number + 1} of {count}, ", told)
                found.append(choose(trained, held, device) if len(trained) > 1 else trained[0])
                readout = found[0].model.options.readout  # the first member decides for all
        self.members_ = [each.model.eval() for each in found]
        self.readout_ = readout
        self.n_epochs_ = [each.epochs for each in found]
        self.validation_loss_ = float(np.mean([each.loss for each in found]))
        self._say(1, f"read-out {readout}, held-out loss {self.validation_loss_:.4f}")

    def _options(self, rows: Rows) -> dict[str, Any]:
        """The options of a trellis network whose receptive field covers the median length."""
        reach, dilation = int(np.median([len(row) for row in rows])), [1]
        while sum(dilation) < reach and len(dilation) < MOST_LAYERS:
            dilation.append(2 * dilation[-1])
        return {
            "hidden_size": self.hidden_size,
            "num_layers": len(dilation) if self.num_layers is None else self.num_layers,
            "dilation": dilation,
            "hidden_dropout": 0.2,
            "bidirectional": self._bidirectional,
            "dtype": torch.float32,
            **(self.model_options or {}),
        }

    def _config(self, count: int, seed: int, device: str) -> TrainingConfig:
        size = min(count, self._chosen("batch_size", 16 if count <= SMALL else 64))
        per_epoch = max(1, count // size)
        epochs = int(np.clip(STEPS // per_epoch, FEWEST_EPOCHS, MOST_EPOCHS))
        return TrainingConfig(
            epochs=self._chosen("max_epochs", epochs),
            batch_size=size,
            optimiser="adamw",
            learning_rate=positive("learning_rate", self.learning_rate),
            weight_decay=0.01,
            schedule="cosine",
            clip=1.0,
            stop_early=positive_int("patience", self.patience),
            evaluate_every=-(-STEPS_BETWEEN // per_epoch),
            seed=seed,
            device=device,
        )

    def _default_members(self, count: int) -> int:
        return 3 if count <= SMALL else 1

    def _chosen(self, name: str, default: int) -> int:
        value = getattr(self, name)
        return default if value is None else positive_int(name, value)

    def _outputs(self, rows: Rows) -> NDArray[np.float64]:
        """The predictions of each member for standardised sequences (members, N, D)."""
        found: list[list[Any]] = [[] for _ in self.members_]
        device = next(self.members_[0].parameters()).device
        with self._threads(), torch.no_grad():
            for start in range(0, len(rows), EVALUATION_BATCH):
                some = rows[start : start + EVALUATION_BATCH]
                x = torch.from_numpy(padded(some)).to(device)
                lengths = [len(row) for row in some]
                for model, results in zip(self.members_, found, strict=True):
                    results.append(model(x, None, lengths).prediction.double().cpu().numpy())
        return np.stack([np.concatenate(results) for results in found])

    def _scaled(self, rows: Rows) -> Rows:
        return [self.input_scale_.apply(row) for row in rows]

    def _fit_scale(self, rows: Rows) -> None:
        if not self._continues():
            self.input_scale_ = Scale.of(np.concatenate(rows).astype(np.float64))

    @contextmanager
    def _threads(self) -> Iterator[None]:
        """`n_jobs` threads during the context; None: as many as torch uses anyway."""
        before = torch.get_num_threads()
        if self.n_jobs is not None:
            torch.set_num_threads(_thread_count(self.n_jobs))
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _say(self, level: int, *texts: str) -> None:
        if self.verbose >= level:
            print(f"{type(self).__name__}: {''.join(texts)}", flush=True)


def _thread_count(n_jobs: int) -> int:
    """As joblib counts: -1 is all cores, -2 all but one."""
    if n_jobs == 0:
        raise ValueError("n_jobs must be a number of threads, or -1 for all cores, got 0")
    from joblib import effective_n_jobs  # noqa: PLC0415

    return int(effective_n_jobs(n_jobs))
