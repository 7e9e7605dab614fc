"""`trellisnet train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trellisnet.core.checks import suggestion
from trellisnet.training.config import About, Config, DataConfig, ModelConfig, TrainingConfig
from trellisnet.training.recipes import load_recipe, merged


def train(
    recipe: str | None = None,
    resume: str | None = None,
    to: str | None = None,
    about: About = About(),  # noqa: B008
    data: DataConfig = DataConfig(),  # noqa: B008
    model: ModelConfig = ModelConfig(),  # noqa: B008
    training: TrainingConfig = TrainingConfig(),  # noqa: B008
) -> int:
    """Train a recipe, or go on with an interrupted run.

    Examples: `trellisnet train demo`, `trellisnet train word-ptb --model.hidden_size 700 --training.epochs 3`,
    `trellisnet train --resume runs/demo-1`, `torchrun --nproc_per_node 4 -m trellisnet train word-ptb`.

    Args:
        recipe: RECIPE: a recipe's name (see `trellisnet recipes`), or the path of a YAML file like them.
        resume: the folder of a run, to go on exactly where it was interrupted.
        to: folder for the new run; default the next free `runs/RECIPE-N`.
        about: what the experiment is.
        data: what is learned from.
        model: what learns.
        training: how.
    """
    from trellisnet.training.fit import resume as go_on  # noqa: PLC0415
    from trellisnet.training.fit import train_new  # noqa: PLC0415
    from trellisnet.training.loop import Interrupted  # noqa: PLC0415

    try:
        if resume is not None:
            go_on(Path(resume))
        else:
            if recipe is None:
                raise ValueError("a recipe or --resume RUN is needed")
            name = Path(recipe).stem
            train_new(Config(about, data, model, training), name, None if to is None else Path(to))
    except Interrupted:
        return 130
    return 0


def prepare(parser: Any, arguments: list[str]) -> list[str]:
    """Make the recipe's values the parser's defaults, so that flags change them and mistakes in them are found."""
    if set(arguments) & {"-h", "--help"}:
        return arguments
    return prepare_recipe(parser, arguments, alone=("resume",))


def prepare_recipe(parser: Any, arguments: list[str], alone: tuple[str, ...] = ()) -> list[str]:
    """Take the recipe's name from the front of the arguments and set its values as defaults.

    Args:
        parser: of the command.
        arguments: of the command line.
        alone: flags that stand in the place of a recipe and allow no other.
    """
    for flag in alone:
        if any(argument.split("=")[0] == f"--{flag}" for argument in arguments):
            others = [argument for argument in arguments if argument.startswith("--") and f"--{flag}" not in argument]
            if others or not arguments[0].startswith("--"):
                given = others[0] if others else arguments[0]
                raise ValueError(f"--{flag} goes on with the run's own configuration: {given} cannot be changed")
            return arguments
    if not arguments or arguments[0].startswith("-"):
        raise ValueError("a recipe is needed first, such as `demo`")
    name, *rest = arguments
    if any(argument.split("=")[0] == "--recipe" for argument in rest):
        raise ValueError("the recipe stands first, without a flag: --recipe cannot be given as well")
    set_defaults(parser, load_recipe(name), name)
    known = [action.dest for action in parser._actions]
    for argument in rest:
        key = argument.split("=")[0].removeprefix("--")
        if argument.startswith("--") and key not in known and not key.startswith("data.options."):
            raise ValueError(f"unknown flag --{key}{suggestion(key, known)}")
    return [*rest, "--recipe", name]


def set_defaults(parser: Any, recipe: dict[str, Any], name: str) -> None:
    """A recipe's values as the parser's defaults; an unknown key or a wrong type is an error that names it."""
    known = [action.dest for action in parser._actions]
    recipe = {section: {} if values is None else values for section, values in recipe.items()}
    for section, values in recipe.items():
        if section not in ("about", "data", "model", "training"):
            raise ValueError(f"recipe {name}: unknown section {section!r}{suggestion(section, known)}")
        if not isinstance(values, dict):
            raise ValueError(f"recipe {name}: unknown key {section!r}{suggestion(section, known)}")
        for key in values:
            if f"{section}.{key}" not in known:
                raise ValueError(f"recipe {name}: unknown key {section}.{key}{suggestion(f'{section}.{key}', known)}")
    defaults = {s: merged(parser.get_defaults()[s].as_dict(), values) for s, values in recipe.items()}
    parser.parse_object(defaults)  # finds wrong types
    for section, values in recipe.items():
        parser.set_defaults({f"{section}.{key}": value for key, value in values.items()})
