"""A search for cells: candidates by evolution or at random, trained in rungs of growing budgets.

A search is a folder. First the noise of seeds is measured, with the LSTM cell. The first rung trains every candidate
for a short time; each further rung trains the best quarter of the one before, four times as long, and the LSTM cell
beside them. A stage is a folder, with a YAML file and a run per candidate. What is finished is read from the folder, so
a search that was killed continues, and several processes can work on it: a lock per candidate says that someone works
on it.
"""

from __future__ import annotations

import math
import random
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from filelock import FileLock, Timeout

from trellisnet.core.cells.definition import Definition, read_text
from trellisnet.data.kinds import KINDS
from trellisnet.files import replacing
from trellisnet.training.cell_space import SEEDS, mutated, random_cell
from trellisnet.training.config import ClockName, Config
from trellisnet.training.contest import MOST_EPOCHS
from trellisnet.training.fit import train_in
from trellisnet.training.metrics import Metric
from trellisnet.training.non_finite import NotANumberError
from trellisnet.training.runs import RESULT, Run, read_json, write_json

STRATEGIES = ("evolution", "random")
REFERENCE = "lstm"
KEPT = 4  # one in n goes on to the next rung, which is n times as long
LAST = 4  # candidates of the last rung, at most
NOISE_RUNS = 3
POPULATION, TOURNAMENT = 32, 8
SHORTEST = 0.25  # minutes of the first rung, by which the default number of candidates is chosen
MOST, FEWEST = 256, 8  # candidates by default
FACTS = "search.json"
WAIT = 0.5  # seconds between looks at what other processes do
MOST_FAILURES = 5  # configurations in a row that cannot be trained at all


class Stage(NamedTuple):
    """A folder of runs with one budget, in minutes or steps of each."""

    name: str
    size: int
    budget: float


class Job(NamedTuple):
    """A candidate in a stage."""

    stage: Stage
    number: int
    cell: Definition
    place: Path


@dataclass(frozen=True)
class Terms:
    """What a search spends.

    Args:
        candidates: number of candidates of the first rung.
        minutes: training time of the whole search; None: `steps` counts.
        steps: training steps of a candidate in the first rung.
        clock: what the minutes count.
    """

    candidates: int
    minutes: float | None
    steps: int | None = None
    clock: ClockName = "wall"

    @staticmethod
    def candidates_for(minutes: float) -> int:
        """The number of candidates that get a quarter of a minute each in the first rung, from 8 to 256.

        >>> Terms.candidates_for(120), Terms.candidates_for(1)
        (111, 8)
        """
        fitting = [n for n in range(FEWEST, MOST + 1) if Terms(n, minutes).stages()[0].budget >= SHORTEST]
        return max(fitting, default=FEWEST)

    def stages(self) -> list[Stage]:
        """The stages in their order; the runs of all of them together use the budget.

        >>> [(stage.name, stage.size, stage.budget) for stage in Terms(32, None, steps=10).stages()]
        [('noise', 3, 10), ('rung-1', 32, 10), ('rung-2', 8, 40), ('rung-3', 2, 160)]
        """
        counts = [self.candidates]
        while counts[-1] > LAST:
            counts.append(max(1, counts[-1] // KEPT))
        units = NOISE_RUNS + sum((n + (rung > 0)) * KEPT**rung for rung, n in enumerate(counts))
        first = self.steps if self.minutes is None else self.minutes / units
        assert first is not None
        rungs = [Stage(f"rung-{rung + 1}", n, first * KEPT**rung) for rung, n in enumerate(counts)]
        return [Stage("noise", NOISE_RUNS, first), *rungs]


class Search:
    """The candidates of a search in a folder.

    Args:
        folder: new, or that of the same search.
        config: the experiment, for any cell.
        facts: what must be the same when the search goes on: recipe, flags, terms.
        metric: the metric to improve, on the validation split.
        terms: what the search spends.
        strategy: one of `STRATEGIES`.

    Raises:
        ValueError: the folder has another search.
    """

    def __init__(
        self, folder: Path, config: Config, facts: Mapping[str, Any], metric: Metric, terms: Terms, strategy: str
    ) -> None:
        self.folder, self.config, self.metric, self.terms, self.strategy = folder, config, metric, terms, strategy
        self.stages, self.seed = terms.stages(), config.training.seed
        self.facts = dict(facts)
        folder.mkdir(parents=True, exist_ok=True)
        with self._choosing():
            known = read_json(folder / FACTS)
            for key, value in (known or {}).items():
                if value != facts.get(key):
                    raise ValueError(
                        f"{folder} was started with {key} = {value!r}, got {facts.get(key)!r}: choose another folder"
                    )
            if known is None:
                write_json(folder / FACTS, dict(facts))

    def jobs(self, stage: Stage) -> list[Job]:
        """The candidates of a stage that exist so far."""
        files = sorted((self.folder / stage.name).glob("*.yaml"))
        return [Job(stage, int(file.stem), read_text(str(file)), file.with_suffix("")) for file in files]

    def score(self, job: Job) -> float | None:
        """The validation metric, lower is better; None: not finished; infinite: dropped."""
        result = read_json(job.place / RESULT)
        if result is None:
            return None
        value = result["metrics"]["valid"][self.metric.name] if "metrics" in result else math.nan
        return math.inf if math.isnan(value) else self.metric.judged(value)

    def ranked(self, stage: Stage) -> list[tuple[float, Job]]:
        """The finished candidates of a stage that were not dropped, the best first."""
        scored = [(self.score(job), job) for job in self.jobs(stage)]
        kept = [(score, job) for score, job in scored if score is not None and math.isfinite(score)]
        return sorted(kept, key=lambda pair: (pair[0], pair[1].number))

    def noise(self) -> list[float]:
        """The scores of the LSTM cell with different seeds."""
        return [score for score, _ in self.ranked(self.stages[0])]

    def best(self) -> tuple[float, Job] | None:
        """The best candidate of the last rung that has one; the LSTM cell counts too."""
        found = [self.ranked(stage) for stage in self.stages[1:]]
        return next((ranked[0] for ranked in reversed(found) if ranked), None)

    def work(self, say: Callable[[str], object], after: Callable[[], object]) -> None:
        """Train candidates until all stages are finished; resume those that nobody works on.

        Args:
            say: reports what is done.
            after: called after each candidate.

        Raises:
            ValueError: several candidates in a row cannot be trained at all.
        """
        failures = 0
        while (claimed := self._claim()) is not None:
            job, lock = claimed
            if job is None:  # others train the last candidates of a stage
                time.sleep(WAIT)
                continue
            assert lock is not None
            try:
                say(f"{job.stage.name} {job.number + 1}: {job.cell.text}")
                failure = self._train(job)
            finally:
                lock.release()
            score = self.score(job)
            assert score is not None
            shown = "dropped" if math.isinf(score) else self.metric.formatted(self.metric.judged(score))
            say(f"{job.stage.name} {job.number + 1}: {self.metric} {shown}")
            after()
            failures = failures + 1 if failure else 0
            if failures == MOST_FAILURES:
                raise ValueError(f"{failures} candidates in a row cannot be trained, the last because {failure}")

    def _claim(self) -> tuple[Job | None, FileLock | None] | None:
        """A candidate to train and its lock, two Nones if others must finish first; None: the search is finished."""
        with self._choosing():
            for index, stage in enumerate(self.stages):
                jobs = self.jobs(stage)
                open_jobs = [job for job in jobs if self.score(job) is None]
                for job in open_jobs:
                    if (lock := self._lock(job)) is not None:
                        if self.score(job) is None:
                            return job, lock
                        lock.release()
                if (cell := self._next_cell(index, jobs)) is not None:
                    job = self._new(stage, len(jobs), cell)
                    lock = self._lock(job)
                    assert lock is not None
                    return job, lock
                if open_jobs:
                    return None, None
        return None

    def _next_cell(self, index: int, jobs: list[Job]) -> Definition | None:
        """The next candidate of a stage; None if it has all."""
        number, stage = len(jobs), self.stages[index]
        if index == 0:
            return SEEDS[REFERENCE] if number < stage.size else None
        if index == 1:
            return self._candidate(number, jobs) if number < stage.size else None
        going_on = [job.cell for _, job in self.ranked(self.stages[index - 1])][: stage.size]
        if all(cell.parts != SEEDS[REFERENCE].parts for cell in going_on):
            going_on.append(SEEDS[REFERENCE])
        return going_on[number] if number < len(going_on) else None

    def _candidate(self, number: int, jobs: list[Job]) -> Definition:
        """A new cell: a seed, a random one, or a mutation of the best of a few of the youngest.

        A generator per candidate: a search that was killed chooses like an uninterrupted one.
        """
        generator = random.Random(f"{self.seed} {number}")
        population = max(2, min(POPULATION, self.terms.candidates // 4))
        finished = [(score, job) for job in jobs if (score := self.score(job)) is not None]
        young, known = finished[-population:], {job.cell.parts for job in jobs}
        name, seeds = f"cell-{number + 1}", list(SEEDS.values())
        if self.strategy == "evolution" and number < len(seeds):
            return seeds[number]
        while True:
            if self.strategy == "random" or len(finished) < population:
                cell = random_cell(generator, name)
            else:
                some = generator.sample(young, max(2, min(TOURNAMENT, population // 4)))
                cell = mutated(min(some, key=lambda pair: (pair[0], pair[1].number))[1].cell, generator, name)
            if cell.parts not in known:
                return cell

    def _new(self, stage: Stage, number: int, cell: Definition) -> Job:
        place = self.folder / stage.name / f"{number:04d}"
        place.parent.mkdir(exist_ok=True)
        with replacing(place.with_suffix(".yaml")) as (file,):
            file.write_text(yaml.safe_dump(cell.to_dict(), sort_keys=False), encoding="utf-8")
        return Job(stage, number, cell, place)

    def configured(self, job: Job) -> Config:
        """The experiment of a candidate."""
        budget: dict[str, Any] = {"minutes": job.stage.budget, "clock": self.terms.clock}
        if self.terms.minutes is None:
            budget = {"max_steps": round(job.stage.budget)}
        seed = self.seed + job.number * (job.stage.name == "noise")
        quiet: dict[str, Any] = {"sample": 0} if KINDS[self.config.data.name] == "text" else {}
        limits = {"epochs": MOST_EPOCHS, "evaluate_every": MOST_EPOCHS, "test": False, "on_nan": "stop", "seed": seed}
        training = replace(self.config.training, **limits, **budget, **quiet)  # type: ignore[arg-type]
        return replace(self.config, model=self.config.model.changed(cell=job.cell.text), training=training)

    def _train(self, job: Job) -> str | None:
        """Train a candidate; drop it if it diverges. Return the reason if it cannot be trained at all."""
        config = self.configured(job)
        try:
            train_in(config, job.place.name, job.place)
        except (NotANumberError, TypeError, ValueError, MemoryError) as error:
            reason = " ".join(str(error).split())
            job.place.mkdir(exist_ok=True)
            Run(job.place, config).write_json(RESULT, {"failed": reason})
            return None if isinstance(error, NotANumberError) else reason
        finally:
            if (job.place / RESULT).exists() and job.stage != self.stages[-1]:
                for folder in ("checkpoints", "best", "last"):  # many candidates would fill a disk
                    shutil.rmtree(job.place / folder, ignore_errors=True)
        return None

    def _choosing(self) -> FileLock:
        """One process at a time chooses a candidate."""
        return FileLock(self.folder / ".lock")

    def _lock(self, job: Job) -> FileLock | None:
        """The lock of a candidate; None if another process holds it."""
        lock = FileLock(job.place.with_suffix(".lock"))
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return None
        return lock
