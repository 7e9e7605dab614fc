"""The ablations of table 6 of the paper: an experiment with one ingredient removed at a time."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from pathlib import Path

from trellisnet.training.config import TEXT_DEFAULTS, Config
from trellisnet.training.reading import flat, read_config
from trellisnet.training.recipes import load_recipe
from trellisnet.training.tasks import make_task
from trellisnet.training.values import as_text


@dataclass(frozen=True)
class Ablation:
    """A change to an experiment, and the paper's result for it on word-level Penn Treebank.

    Attributes:
        change: changes the configuration in place, or returns the reason why it does not apply.
    """

    name: str
    title: str
    paper_result: float
    change: Callable[[Config], str | None]


def _without(*options: str) -> Callable[[Config], str | None]:
    def change(config: Config) -> str | None:
        if not any(getattr(config.model, option, None) for option in options):
            return f"the recipe has no {options[0]}"
        defaults = {option.name: option.default for option in fields(config.model) if option.name in options}
        config.model = config.model.changed(**defaults)
        return None

    return change


def _without_parallelism(config: Config) -> str | None:
    """Carry the state from window to window, as the paper's other models do; windows keep their length."""
    if getattr(config.model, "history", None) != "discard":
        return "the recipe discards no context"
    steps = config.training.steps or TEXT_DEFAULTS["steps"]
    config.training.steps = steps + (config.model.horizon or 0)
    config.model = config.model.changed(history="repackage", horizon=None)
    return None


def _without_dense_kernel(config: Config) -> str | None:
    """Use two groups of equal width, as wide as possible with the same number of parameters."""
    if config.model.body != "trellis":
        return f"the body {config.model.body!r} has no groups"
    if config.model.groups:
        return "the recipe has groups already"
    hidden, channels = config.model.hidden_size, getattr(config.model, "embedding_size", None) or 1
    taps = config.model.kernel_size
    size = taps * hidden * (hidden + channels)  # of the dense kernel, per gate
    width = 1
    while _grouped(width + 1, channels, taps) <= size:
        width += 1
    config.model = config.model.changed(groups=[width, width], hidden_size=2 * width)
    return None


def _grouped(width: int, channels: int, taps: int) -> int:
    """Weights per gate of a kernel with two groups.

    The input and the present of the first group enter by one tap, each group's own past by the other taps.
    """
    return width * channels + width * width + 2 * (taps - 1) * width * width


def _injected_every(layers: int) -> Callable[[Config], str | None]:
    def change(config: Config) -> str | None:
        if config.model.body != "trellis":
            return f"the body {config.model.body!r} has no inject_every"
        if config.model.num_layers <= layers:
            return f"the recipe has only {config.model.num_layers} layers"
        config.model = config.model.changed(inject_every=layers)
        return None

    return change


ABLATIONS = [
    Ablation("full", "the recipe as it is", 56.97, lambda config: None),
    Ablation("no-hidden-dropout", "without hidden dropout", 64.69, _without("hidden_dropout")),
    Ablation("no-weight-dropout", "without weight dropout", 63.82, _without("weight_dropout")),
    Ablation("no-aux", "without auxiliary losses", 57.99, _without("aux_every", "aux_weight")),
    Ablation("no-parallelism", "without long-sequence parallelism", 57.35, _without_parallelism),
    Ablation("no-dense-kernel", "mixed-group kernel of equal size", 59.18, _without_dense_kernel),
    Ablation("inject-2", "input injected every 2 layers", 57.44, _injected_every(2)),
    Ablation("inject-5", "input injected every 5 layers", 59.75, _injected_every(5)),
    Ablation("inject-10", "input injected every 10 layers", 60.70, _injected_every(10)),
    Ablation("inject-20", "input injected every 20 layers", 74.91, _injected_every(20)),
]


def flags_from(recipe: str, config: Config) -> list[str]:
    """The flags of `trellisnet train RECIPE` that give a configuration."""
    before, now = (flat(each.to_dict()) for each in (read_config(load_recipe(recipe), recipe), config))
    changed = [key for key, value in now.items() if key not in before or before[key] != value]
    wanted = [key for key in changed if not key.startswith("about.")]
    return [part for key in wanted for part in (f"--{key}", as_text(now[key]))]


def variant(config: Config, ablation: Ablation) -> tuple[Config, str | None]:
    """The configuration of an ablation, and the reason why it does not apply, or None."""
    changed = deepcopy(config)
    changed.about.title = f"{config.about.title}, {ablation.title}"
    return changed, ablation.change(changed)


def run_of(config: Config, ablation: Ablation, number: int, folder: Path) -> tuple[Path, Config]:
    """Folder and configuration of a run of a variant, counted from 0."""
    seed = config.training.seed + number
    return folder / ablation.name / f"seed-{seed}", replace(config, training=replace(config.training, seed=seed))


def sized(config: Config) -> Config:
    """The configuration with the width that meets `model.parameters`, so that all variants have it."""
    if getattr(config.model, "parameters", None) is None:
        return config
    return make_task(config).config
