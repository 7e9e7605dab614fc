"""A contest of bodies on one experiment: equal time, and for each the best of a few learning rates.

A contest is a folder. Each contestant has a folder in it, with one run per pilot and one per seed, so that a contest
that was interrupted continues where it stopped.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from trellisnet.models.body import for_inference, needs_state, run_body
from trellisnet.training.checks import check_config
from trellisnet.training.clock import now
from trellisnet.training.config import ClockName, Config
from trellisnet.training.fit import train_in
from trellisnet.training.non_finite import NotANumberError
from trellisnet.training.reporting.summary import Summary, summarise
from trellisnet.training.runs import RESULT, Run
from trellisnet.training.tasks import make_task

MOST_EPOCHS = 1_000_000  # the time ends first
EVALUATIONS = 5  # of a run, by its clock
STREAMED, STREAMS = 500, 3  # steps of a stream, and streams, of which the median counts
STREAM = "stream.json"


@dataclass(frozen=True)
class Terms:
    """The terms of a contest, equal for all contestants.

    Args:
        minutes: training time of a run.
        pilot_minutes: training time of a pilot, a short run that tries a learning rate.
        rates: number of learning rates that pilots try; 1: no pilots.
        factor: between neighbouring rates; one of the rates is the contestant's own.
        seeds: number of runs per contestant, with different seeds.
        clock: what the minutes count, wall or cpu.
    """

    minutes: float
    pilot_minutes: float
    rates: int = 3
    factor: float = 2.0
    seeds: int = 3
    clock: ClockName = "wall"

    def rates_around(self, rate: float) -> list[float]:
        """The learning rates to try, in ascending order.

        >>> Terms(10, 2, rates=3).rates_around(0.004), Terms(10, 2, rates=2).rates_around(0.004)
        ([0.002, 0.004, 0.008], [0.002, 0.004])
        """
        first = -(self.rates // 2)
        return [float(f"{rate * self.factor**power:.6g}") for power in range(first, first + self.rates)]


class Contestant:
    """An experiment that takes part in a contest.

    Args:
        name: its name; the folder's name follows from it.
        config: the experiment.
        folder: the folder of the contest.
        options: its own options by flag, for the record.
        command: the command that trains it, without the options that the contest sets, for the record.

    Raises:
        ValueError, TypeError: the configuration, the data and the model do not fit together, or there is no validation
            split to choose by.
    """

    def __init__(
        self, name: str, config: Config, folder: Path, options: Mapping[str, str] | None = None, command: str = ""
    ) -> None:
        check_config(config)
        self.name, self.folder = name, folder / folder_name(name)
        self.options, self.command = dict(options or {}), command
        task = make_task(config)
        if "valid" not in task.splits:
            raise ValueError(
                f"{config.data.name} has no validation split to choose by; pixel tasks hold back training images with "
                f"--data.options.valid_items 5000"
            )
        self.config = task.config
        self.model, self.parameters, self.metric = task.model, task.num_parameters, task.metric

    def pilot(self, terms: Terms, rate: float) -> tuple[Path, Config]:
        """Folder and configuration of a pilot; it does not read the test split."""
        changes = {"minutes": terms.pilot_minutes, "clock": terms.clock, "learning_rate": rate, "test": False}
        return self.folder / f"pilot-{rate:g}", self._changed(**changes)

    def final(self, terms: Terms, rate: float, number: int) -> tuple[Path, Config]:
        """Folder and configuration of one of the final runs, counted from 0."""
        seed = self.config.training.seed + number
        changes = {"minutes": terms.minutes, "clock": terms.clock, "learning_rate": rate, "seed": seed}
        return self.folder / f"seed-{seed}", self._changed(**changes, evaluate_minutes=terms.minutes / EVALUATIONS)

    def _changed(self, **changes: Any) -> Config:
        limits: dict[str, Any] = {"epochs": MOST_EPOCHS, "evaluate_every": MOST_EPOCHS}
        return replace(self.config, training=replace(self.config.training, **limits, **changes))

    def streamed_step(self, clock: ClockName) -> float:
        """Seconds per step of a stream of the body, one sequence; measured once per contest."""
        self.folder.mkdir(parents=True, exist_ok=True)
        place = Run(self.folder, self.config)
        known = place.read_json(STREAM)
        if known is None:
            known = {"seconds": time_of_streamed_step(self.model.net, clock)}
            place.write_json(STREAM, known)
        return float(known["seconds"])


def folder_name(name: str) -> str:
    """The name of a contestant's folder.

    >>> folder_name("trellis:path=sweeps;dilation=[1,2]")
    'trellis-path=sweeps-dilation=-1-2'
    """
    return re.sub(r"[^\w.=+-]+", "-", name).strip("-")


def time_of_streamed_step(body: Any, clock: ClockName = "wall") -> float:
    """Seconds per step of a stream of one sequence from its beginning: the median of a few streams."""
    x = torch.ones(1, 1, body.input_size)
    times = []
    with torch.no_grad():
        fast = for_inference(body.eval())
        for _ in range(STREAMS):
            state, started = None, now(clock)
            for _ in range(STREAMED):
                state = needs_state(fast, run_body(fast, x, state).state)
            times.append((now(clock) - started) / STREAMED)
    return statistics.median(times)


def hold(contestants: list[Contestant], terms: Terms, say: Callable[[str], None], after: Callable[[], object]) -> None:
    """Train the contestants one after the other. What is finished is kept, and what is half finished is resumed.

    Args:
        contestants: the contestants.
        terms: the terms of the contest.
        say: reports what is trained next.
        after: called after each contestant.

    Raises:
        Interrupted: training was interrupted and saved.
        ValueError: a run in the folder was started with other values.
    """
    for contestant in contestants:
        for rate in pilot_rates(contestant, terms):
            say(f"{contestant.name}: pilot at learning rate {rate:g}")
            train_or_note(*contestant.pilot(terms, rate), say)
        if (chosen := chosen_rate(contestant, terms)) is None:
            say(f"{contestant.name}: all pilots diverged, so it has no result")
        for number in range(terms.seeds if chosen is not None else 0):
            assert chosen is not None
            say(f"{contestant.name}: learning rate {chosen:g}, run {number + 1} of {terms.seeds}")
            train_or_note(*contestant.final(terms, chosen, number), say)
        after()


def pilot_rates(contestant: Contestant, terms: Terms) -> list[float]:
    """The learning rates that have pilots; none if there is only one rate."""
    return terms.rates_around(contestant.config.training.learning_rate) if terms.rates > 1 else []


def chosen_rate(contestant: Contestant, terms: Terms) -> float | None:
    """The learning rate of the pilot with the best validation; None if pilots are missing, or all of them diverged."""
    if not (rates := pilot_rates(contestant, terms)):
        return contestant.config.training.learning_rate
    scores = pilot_scores(contestant, terms)
    known = {rate: contestant.metric.judged(value) for rate, value in scores.items() if value is not None}
    return min(known, key=known.__getitem__, default=None) if len(scores) == len(rates) else None


def pilot_scores(contestant: Contestant, terms: Terms) -> dict[float, float | None]:
    """The validation metric of each pilot so far by its learning rate; None if it diverged."""
    scores: dict[float, float | None] = {}
    for rate in pilot_rates(contestant, terms):
        place, _ = contestant.pilot(terms, rate)
        if (place / RESULT).exists():
            value = summarise(Run.open(place)).final("valid", contestant.metric)
            scores[rate] = None if value is None or math.isnan(value) else value
    return scores


def final_runs(contestant: Contestant, terms: Terms, rate: float) -> list[tuple[Summary, float]]:
    """The final runs that are finished, each with its seconds per training step."""
    runs = []
    for number in range(terms.seeds):
        place, _ = contestant.final(terms, rate, number)
        if (place / RESULT).exists() and "metrics" in (Run.open(place).read_json(RESULT) or {}):
            last = Run.open(place).metrics()[-1]
            runs.append((summarise(Run.open(place)), last["seconds"] / last["step"]))
    return runs


def train_or_note(place: Path, config: Config, say: Callable[[str], None]) -> None:
    """Train a run, unless it is finished; note a divergence as its result."""
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        train_in(config, place.name, place)
    except NotANumberError as error:
        say(f"{place} diverged: {error}")
        Run(place, config).write_json(RESULT, {"failed": str(error)})
