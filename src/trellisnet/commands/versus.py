"""`trellisnet versus`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from trellisnet.commands.experiment import read_experiment
from trellisnet.commands.printing import print_table
from trellisnet.core.checks import one_of, positive, positive_int
from trellisnet.models.bodies import BODIES
from trellisnet.training.config import ClockName, Config

OWN = {  # flags of a recipe that this command sets
    "model.body": "--bodies",
    "model.parameters": "--parameters",
    "training.minutes": "--minutes",
    "training.clock": "--clock",
    "training.epochs": "--minutes",
    "training.evaluate_every": "--minutes",
    "training.evaluate_minutes": "--minutes",
    "training.test": "--minutes",
}
VARIED = ("learning_rate", "seed")  # options of training that differ between the runs of a contestant


def versus(
    recipe: str,
    *,
    bodies: str,
    minutes: float,
    parameters: float | None = None,
    seeds: int = 3,
    rates: int = 3,
    factor: float = 2.0,
    pilot_minutes: float | None = None,
    clock: ClockName = "wall",
    folder: str | None = None,
    flags: dict[str, str],
) -> int:
    """Compare bodies on a recipe: equal training time, equal size, each with its best of a few learning rates.

    Examples: `trellisnet versus perm-mnist-small --bodies trellis,lstm,gru --minutes 10 --parameters 0.1e6`,
    `trellisnet versus char-ptb-small --bodies "trellis,trellis:num_layers=12,lstm:num_layers=2;bias=true" --minutes 5`.
    Flags of the recipe, as of `trellisnet train`, apply to all contestants. Pilots choose the learning rate of each
    contestant by validation, then it is trained with that rate and each seed. Called again with the same folder, it
    continues where it was interrupted.

    Args:
        recipe: name of a recipe (see `trellisnet recipes`), or path of a YAML file.
        bodies: contestants, separated by commas. A contestant is a body, and after a colon its own options, separated
            by semicolons: `lstm:num_layers=2;training.clip=1`. An option without a section belongs to the model.
        minutes: training time of each run; evaluation does not count.
        parameters: choose the width of each contestant so that its model has about this number of parameters, except
            where a contestant has its own `hidden_size`.
        seeds: number of runs per contestant.
        rates: number of learning rates to try, around that of the recipe; 1: no pilots.
        factor: factor between neighbouring learning rates.
        pilot_minutes: training time of a pilot; default a fifth of --minutes.
        clock: what the minutes count: wall, or cpu, the time that the cores spend on it, for machines with other work.
        folder: folder for the runs, the report and results.json; default `runs/versus-RECIPE`.
        flags: the flags that change the recipe.
    """
    from trellisnet.training.contest import Contestant, Terms, hold  # noqa: PLC0415
    from trellisnet.training.reporting.contest import HEAD, Standing, write_results  # noqa: PLC0415
    from trellisnet.training.reporting.report import REPORT  # noqa: PLC0415
    from trellisnet.training.runs import environment  # noqa: PLC0415
    from trellisnet.training.signals import Interrupted  # noqa: PLC0415

    for flag, instead in OWN.items():
        if flag in flags:
            raise ValueError(f"versus sets {flag} for all contestants: use {instead} instead of --{flag}")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("versus runs in one process")
    positive("--minutes", minutes)
    if pilot_minutes is not None and rates == 1:
        raise ValueError(f"--pilot_minutes needs --rates of at least 2: got {pilot_minutes:g} and --rates 1")
    terms = Terms(
        minutes,
        minutes / 5 if pilot_minutes is None else positive("--pilot_minutes", pilot_minutes),
        positive_int("--rates", rates),
        _above_one("--factor", factor),
        positive_int("--seeds", seeds),
        clock,
    )
    place = Path("runs") / f"versus-{Path(recipe).stem}" if folder is None else Path(folder)
    wanted = {} if parameters is None else {"model.parameters": f"{parameters:g}"}
    contestants = []
    for entry in read_entries(recipe, bodies, {**flags, **wanted}):
        with entry.named():
            command = _command(recipe, entry.changes)
            contestants.append(Contestant(entry.name, entry.config, place, entry.options, command))
    facts = {
        "recipe": recipe,
        "flags": flags,
        "wanted_parameters": parameters,
        **asdict(terms),
        "environment": environment(),
    }

    def standings() -> list[Standing]:
        return [Standing(contestant, terms) for contestant in contestants]

    try:
        hold(contestants, terms, _say, lambda: write_results(place, facts, standings()))
    except Interrupted:
        return 130
    ordered = sorted(standings(), key=lambda standing: standing.judged)
    print_table(HEAD, [standing.row() for standing in ordered], HEAD[:1])
    print(f"report: {place / REPORT}")
    return 0


class Entry:
    """A contestant as the command line describes it.

    Args:
        name: its text in --bodies.
        recipe: the recipe.
        flags: the flags for all contestants.

    Attributes:
        options: its own options by flag.
        changes: all flags that change the recipe for it.
        config: the recipe with these flags.
    """

    def __init__(self, name: str, recipe: str, flags: Mapping[str, str]) -> None:
        self.name = name
        body, self.options = split_contestant(name)
        shared = dict(flags)
        if "model.hidden_size" in self.options:
            shared.pop("model.parameters", None)
        self.changes = {"model.body": body, **shared, **self.options}
        with self.named():
            config = read_experiment({"recipe": recipe}, self.changes, ())
        assert config is not None
        if any(share < 1 for share, _ in config.training.depths):
            _say(f"note: training.depths counts epochs and does not apply to a time budget: {name}")
            self.changes["training.depths"] = "[]"
            config = replace(config, training=replace(config.training, depths=[]))
        self.config: Config = config

    @contextmanager
    def named(self) -> Iterator[None]:
        """Let errors name the contestant."""
        try:
            yield
        except (TypeError, ValueError) as error:
            raise ValueError(f"contestant {self.name}: {error}") from None


def read_entries(recipe: str, bodies: str, flags: Mapping[str, str]) -> list[Entry]:
    """The contestants of --bodies; a ValueError that names a wrong one."""
    from trellisnet.training.contest import folder_name  # noqa: PLC0415

    names = split_bodies(bodies)
    folders = [folder_name(name) for name in names]
    for folder in folders:
        if folders.count(folder) > 1:
            raise ValueError(f"--bodies must name contestants with different folders, got {folder} twice")
    return [Entry(name, recipe, flags) for name in names]


def split_bodies(text: str) -> list[str]:
    """The contestants of --bodies: a text split at its commas, except those of lists.

    >>> split_bodies("trellis:dilation=[1,2];training.depths=[[1,[2,8]]], lstm")
    ['trellis:dilation=[1,2];training.depths=[[1,[2,8]]]', 'lstm']
    """
    names, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            names.append("")
        else:
            names[-1] += letter
    return [name.strip() for name in names]


def split_contestant(text: str) -> tuple[str, dict[str, str]]:
    """The body of a contestant, and its own options by flag.

    >>> split_contestant("lstm:num_layers=2;training.clip=1")
    ('lstm', {'model.num_layers': '2', 'training.clip': '1'})
    """
    body, colon, rest = text.partition(":")
    one_of("--bodies: each body", body, BODIES)
    options = {}
    for part in rest.split(";") if colon else ():
        name, equals, value = part.strip().partition("=")
        if not equals or not name:
            raise ValueError(f"--bodies: options are written BODY:key=value;key=value, got {part!r} in {text!r}")
        flag = name if "." in name else f"model.{name}"
        if flag in OWN:
            raise ValueError(f"versus sets {flag} for all contestants: use {OWN[flag]}, got {text!r}")
        options[flag] = value
    return body, options


def _command(recipe: str, changes: Mapping[str, str]) -> str:
    """The command that trains a contestant, without what differs between its runs."""
    flags = [(f"--{name}", text) for name, text in changes.items() if name.removeprefix("training.") not in VARIED]
    return shlex.join(["trellisnet", "train", recipe, *(part for flag in flags for part in flag)])


def _above_one(name: str, value: float) -> float:
    if not positive(name, value) > 1:
        raise ValueError(f"{name} must be a number > 1, got {value:g}")
    return value


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
