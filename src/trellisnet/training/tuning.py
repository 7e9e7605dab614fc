"""A study: many trials of an experiment with other options, chosen by optuna, pruned by the metrics that are logged.

A study is a folder. `study.db` has the trials; each trial is a run in a folder of its own. A trial that was killed is
resumed from its checkpoint by whoever comes next, and several processes can work on one study: a lock per trial says
that someone works on it.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from trellisnet.extras import require
from trellisnet.training.config import Config
from trellisnet.training.fit import train_in
from trellisnet.training.metrics import Metric
from trellisnet.training.non_finite import NotANumberError
from trellisnet.training.space import Dimension, Range

NAME, STORE = "tune", "study.db"
PRUNERS = ("median", "hyperband", "none")
MOST_FAILURES = 5  # trials in a row
PATIENCE = 120  # seconds that a process waits for another one to release the database


class _Ended(BaseException):
    """Ends the training of a trial from within; no Exception, because training must not catch it."""


class _Pruned(_Ended):
    """The trial is worse than others at the same evaluation."""


class _TimeIsUp(_Ended):
    """The budget of the study is used up; the trial can be resumed."""


def require_optuna() -> Any:
    """Import optuna; an ImportError that names the extra if it is not installed."""
    optuna = require("optuna", "tune", "tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Study:
    """The trials of a search in a folder.

    Args:
        folder: new, or that of the same search.
        space: the options to vary.
        facts: what must be the same when the study goes on: recipe, flags, space.
        metric: the metric to improve, on the validation split.
        pruner: one of `PRUNERS`.
        evaluations: number of evaluations of a trial; None: not known.
        seed: seed of the choices.

    Raises:
        ImportError: optuna is not installed.
        ValueError: the folder has another study.
    """

    def __init__(
        self,
        folder: Path,
        space: Mapping[str, Dimension],
        facts: Mapping[str, Any],
        metric: Metric,
        pruner: str,
        evaluations: int | None,
        seed: int,
    ) -> None:
        optuna = self.optuna = require_optuna()
        self.folder, self.space, self.metric, self.seed = folder, space, metric, seed
        folder.mkdir(parents=True, exist_ok=True)
        pruners = {
            "median": lambda: optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1),
            "hyperband": lambda: optuna.pruners.HyperbandPruner(max_resource=evaluations or "auto"),
            "none": optuna.pruners.NopPruner,
        }
        with self._choosing():
            storage = optuna.storages.RDBStorage(
                f"sqlite:///{folder / STORE}", engine_kwargs={"connect_args": {"timeout": PATIENCE}}
            )
            self.study = optuna.create_study(
                storage=storage, study_name=NAME, direction="minimize", pruner=pruners[pruner](), load_if_exists=True
            )
            wanted = json.loads(json.dumps(facts))
            for key, value in wanted.items():
                known = self.study.user_attrs.get(key, value)
                if known != value:
                    raise ValueError(
                        f"{folder} was started with {key} = {known!r}, got {value!r}: choose another folder"
                    )
                self.study.set_user_attr(key, value)

    @property
    def trials(self) -> list[Any]:
        """All trials so far."""
        found: list[Any] = self.study.get_trials(deepcopy=False)
        return found

    def finished(self) -> list[Any]:
        """The trials that are complete, pruned or failed."""
        return [trial for trial in self.trials if trial.state.is_finished()]

    def complete(self) -> list[Any]:
        """The trials that were trained to the end, the best first."""
        done = [trial for trial in self.trials if trial.state.name == "COMPLETE"]
        return sorted(done, key=lambda trial: trial.value)

    def place(self, number: int) -> Path:
        """The folder of a trial's run."""
        return self.folder / "trials" / f"{number:04d}"

    def work(
        self,
        configure: Callable[[Mapping[str, str]], Config],
        trials: int | None,
        minutes: float | None,
        say: Callable[[str], object],
        after: Callable[[], object],
    ) -> None:
        """Resume trials that nobody works on, and start new ones, until the budget is used up.

        Args:
            configure: the configuration of a trial, from its options by flag.
            trials: number of trials of the whole study.
            minutes: time budget of this call; a trial that is not finished then can be resumed.
            say: reports what is done.
            after: called after each trial.

        Raises:
            ValueError: five trials in a row failed.
        """
        until = math.inf if minutes is None else time.monotonic() + 60 * minutes
        failures = 0
        while time.monotonic() < until:
            claimed = self._claim(trials)
            if claimed is None:
                return
            trial, lock = claimed
            try:
                failure = self._run(trial, configure, until, say)
            except _TimeIsUp:
                say(f"trial {trial.number}: the time is up; the next call resumes it")
                return
            finally:
                lock.release()
            after()
            failures = failures + 1 if failure else 0
            if failures == MOST_FAILURES:
                raise ValueError(f"{failures} trials in a row failed, the last because {failure}")

    def _claim(self, most: int | None) -> tuple[Any, FileLock] | None:
        """A trial that was left unfinished, or a new one, and its lock; None if there are enough trials."""
        optuna = self.optuna
        with self._choosing():
            for frozen in self.trials:
                if frozen.state.name == "RUNNING" and (lock := self._lock(frozen.number)) is not None:
                    return self._chosen(optuna.trial.Trial(self.study, frozen._trial_id)), lock
            if most is not None and len(self.trials) >= most:
                return None
            trial = self._chosen(self.study.ask())
            lock = self._lock(trial.number)
            assert lock is not None
            return trial, lock

    def _chosen(self, trial: Any) -> Any:
        """Choose the options that a trial does not have yet: its process may have been killed while it chose."""
        for position, (name, dimension) in enumerate(self.space.items()):
            # a seed per option: parallel workers choose differently, and a resumed study as an uninterrupted one
            seed = self.seed + trial.number * len(self.space) + position
            self.study.sampler = self.optuna.samplers.TPESampler(seed=seed)
            if not isinstance(dimension, Range):
                trial.suggest_categorical(name, dimension.texts)
                continue
            low, high, log, step = dimension.low, dimension.high, dimension.log, dimension.step
            if all(isinstance(value, int) for value in (low, high, 1 if step is None else step)):
                trial.suggest_int(name, low, high, log=log, step=step or 1)
            else:
                trial.suggest_float(name, low, high, log=log, step=step)
        return trial

    @contextmanager
    def _choosing(self) -> Iterator[None]:
        """One process at a time chooses a trial."""
        with FileLock(self.folder / ".lock"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental features of optuna
            yield

    def _lock(self, number: int) -> FileLock | None:
        """The lock of a trial; None if another process holds it."""
        place = self.place(number)
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(place.with_suffix(".lock"))
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return None
        return lock

    def _run(
        self, trial: Any, configure: Callable[[Mapping[str, str]], Config], until: float, say: Callable[[str], object]
    ) -> str | None:
        """Train a trial and record its result; return the reason if it failed."""
        place, states = self.place(trial.number), self.optuna.trial.TrialState
        flags = {name: as_flag(value) for name, value in trial.params.items()}
        say(f"trial {trial.number}: {', '.join(f'{name} {text}' for name, text in flags.items())}")
        watch = _Watch(trial, self.metric, until)
        try:
            train_in(configure(flags), place.name, place, watch)
        except _Pruned:
            self.study.tell(trial, state=states.PRUNED)
            say(f"trial {trial.number}: pruned after {len(watch.values)} evaluations")
        except (NotANumberError, TypeError, ValueError, MemoryError) as error:
            reason = " ".join(str(error).split())
            trial.set_user_attr("failed", reason)
            self.study.tell(trial, state=states.FAIL)
            say(f"trial {trial.number}: failed: {reason}")
            return reason
        else:
            best = min(watch.values)
            self.study.tell(trial, best)
            say(f"trial {trial.number}: {self.metric} {self.metric.formatted(self.metric.judged(best))}")
        return None

    def importances(self) -> dict[str, float]:
        """The share of each option in the differences between complete trials; empty if there are too few."""
        evaluator = self.optuna.importance.PedAnovaImportanceEvaluator
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = self.optuna.importance.get_param_importances(self.study, evaluator=evaluator())
            except (ValueError, RuntimeError):
                return {}
        return {name: share for name, share in found.items() if math.isfinite(share)}


class _Watch:
    """Reports the evaluations of a trial to the study, and ends the trial if that is worse than others."""

    def __init__(self, trial: Any, metric: Metric, until: float) -> None:
        self.trial, self.metric, self.until = trial, metric, until
        self.values: list[float] = []  # lower is better
        self.known = set(trial.study.get_trials()[trial.number].intermediate_values)

    def __call__(self, entry: Mapping[str, Any]) -> None:
        if "valid" in entry:
            value = self.metric.judged(entry["valid"][self.metric.name])
            self.values.append(math.inf if math.isnan(value) else value)
            number = len(self.values)
            if number not in self.known:  # a resumed trial has reported some before
                self.trial.report(self.values[-1], number)
                if self.trial.should_prune():
                    raise _Pruned
        if time.monotonic() >= self.until and "best" not in entry:
            raise _TimeIsUp


def as_flag(value: object) -> str:
    """The text of a flag for the value of a parameter.

    >>> as_flag(0.001), as_flag("[1, 2]")
    ('0.001', '[1, 2]')
    """
    return value if isinstance(value, str) else json.dumps(value)
