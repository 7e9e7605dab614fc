"""The configuration of an experiment as typed dataclasses. Does not import torch, so that `--help` is fast."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, is_dataclass, make_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from typing_extensions import Self

from trellisnet.data.kinds import Kind
from trellisnet.models.bodies import BODIES, body_options
from trellisnet.models.options import LanguageOptions, ModelOptions, Seq2SeqOptions, SequenceOptions
from trellisnet.training.depths import Depth

# options that only text has
TEXT_DEFAULTS: dict[str, Any] = {"steps": 64, "random_windows": False, "evaluation": "streaming", "sample": 400}
FOLLOWS = ("staggered",)  # options of a body that are derived from others


@dataclass
class About:
    """Title of an experiment, and the paper's results.

    Args:
        title: one line.
        metric: metric of the result: perplexity, bits, accuracy, mse, nll or pinball.
        paper_result: the paper's result on the test split.
        paper_parameters: the paper's number of parameters, in millions.
    """

    title: str = ""
    metric: Literal["perplexity", "bits", "accuracy", "mse", "nll", "pinball"] | None = None
    paper_result: float | None = None
    paper_parameters: float | None = None


@dataclass
class DataConfig:
    """The dataset.

    Args:
        name: name of the dataset: ptb-word, ptb-char, wikitext-2, wikitext-103, seq-mnist, perm-mnist, seq-cifar10,
            copy-memory, adding, python-library, text or series (your own files).
        root: folder that is searched first for a benchmark's files, before $TRELLISNET_DATA and the user's cache.
        options: options of the dataset, such as path, kind, steps.
    """

    name: str = "python-library"
    root: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class ModelConfig:
    """Options of every model. `model_config` adds the options of a body and of the model around it.

    Args:
        body: the net between input and head: a trellis network, or a baseline.
    """

    body: str = "trellis"

    if TYPE_CHECKING:  # `model_config` adds the options at run time

        def __getattr__(self, name: str) -> Any: ...

    def chosen(self) -> dict[str, Any]:
        """The options that differ from their defaults, except the body: arguments for functions in `models.build`."""
        names = [option.name for option in fields(self) if getattr(self, option.name) != option.default]
        return {name: getattr(self, name) for name in names if name != "body"}

    def changed(self, **options: Any) -> Self:
        """A copy with some options changed."""
        return replace(self, **options)


@dataclass(kw_only=True)
class BuiltModel(ModelConfig):
    """Options of every model that is built from its configuration.

    Args:
        parameters: choose `hidden_size` so that the whole model has about this number of parameters, within 3 %; for
            example 0.5e6. A run's config.yaml has the `hidden_size` that was found, and null here.
    """

    parameters: float | None = None


@dataclass(kw_only=True)
class LanguageConfig(BuiltModel):
    """Options of every language model and translator.

    Args:
        embedding_size: channels of the embedding; default `hidden_size`, or for copy-memory one per symbol.
    """

    embedding_size: int | None = None


@dataclass(kw_only=True)
class GivenModel(ModelConfig):
    """Description of a model that was passed from Python. The model cannot be built from it.

    Args:
        body: name of its body, or class of the user's own body or model.
        options: the options that the model was built with.
    """

    options: dict[str, Any]


def around_body(kind: Kind) -> tuple[type[BuiltModel], type[ModelOptions | Seq2SeqOptions]]:
    """The dataclasses that declare a model's options, except those of its body, for a kind of data."""
    if kind == "pairs":
        return LanguageConfig, Seq2SeqOptions
    return (BuiltModel, SequenceOptions) if kind == "sequences" else (LanguageConfig, LanguageOptions)


@cache
def model_config(body: str, kind: Kind) -> type[Any]:
    """The dataclass of a model's configuration, built from the declarations of its options.

    Args:
        body: one of `BODIES`.
        kind: kind of the data.

    >>> model_config("lstm", "sequences")(hidden_size=8, dropout=0.0).chosen()
    {'hidden_size': 8}
    """
    base, around = around_body(kind)
    names: Any = Literal[tuple(BODIES)]
    options: dict[str, Any] = {"body": (names, field(default=body))}
    for declared in (around, body_options(body)):
        hints = get_type_hints(declared, localns={"Cell": str})  # in YAML a cell is given by name
        texts = documented(declared)
        for option in fields(declared):
            if option.name not in FOLLOWS:
                copied = field(
                    default=option.default,
                    default_factory=option.default_factory,
                    metadata={"help": texts.get(option.name, "")},
                )
                options[option.name] = (hints[option.name], copied)
    declarations = [(name, hint, copied) for name, (hint, copied) in options.items()]
    return make_dataclass(f"{base.__name__}Of{body.title()}", declarations, bases=(base,), kw_only=True)


def documented(declared: Any) -> dict[str, str]:
    """The description of each argument in the docstrings of a function, or of a dataclass and its bases."""
    from docstring_parser import parse  # noqa: PLC0415

    texts = {}
    for owner in reversed(getattr(declared, "__mro__", (declared,))):
        found = parse(owner.__doc__ or "").params
        texts.update({each.arg_name: " ".join((each.description or "").split()) for each in found})
    if is_dataclass(declared):
        texts.update({option.name: option.metadata["help"] for option in fields(declared) if option.metadata})
    return texts


ClockName = Literal["wall", "cpu"]


@dataclass
class TrainingConfig:
    """Options of training.

    Args:
        epochs: passes over the training split; with `minutes` the upper bound.
        minutes: time budget of training, summed over resumptions; evaluation and checkpoints do not count. `warmup` and
            the schedules cosine and linear then follow the larger of the shares of the steps and of the time.
        max_steps: stop after n training steps; `warmup` and the schedules cosine and linear follow them. Unlike with
            `minutes`, every run gives the same result.
        clock: with `minutes`: wall, or cpu: the time that the cores spend on this process, all threads together. On a
            machine with other work, cpu is fair.
        batch_size: number of sequences, or of columns of a text, over all processes.
        steps: text only: steps per window that count in the loss; default 64.
        random_windows: text only: windows of random length, as AWD-LSTM has them: normal with the mean `steps`, or half
            of it for one window in 20, and a standard deviation of 5, but at least 5. The learning rate of a step is
            multiplied by the length of its window / `steps`. `seed` determines the lengths; default false.
        accumulate: split each batch into n parts and accumulate their gradients, to save memory.
        optimiser: sgd, adam or adamw.
        learning_rate: highest learning rate.
        momentum: momentum of sgd.
        weight_decay: weight decay of all optimisers; decoupled in adamw.
        clip: maximum norm of the gradient.
        schedule: constant; plateau: divide by `decay` when validation is not better than the best of all but the last
            `patience` evaluations; steps: divide by `decay` after the epochs `decay_after`; cosine or linear: decrease
            to 0 at the end.
        decay: divisor of the schedules plateau and steps.
        decay_after: epochs after which the schedule steps decays.
        patience: number of evaluations for plateau and `average`.
        warmup: share of all steps in which the learning rate increases linearly, for every schedule.
        average: switch to averaged weights when validation stalls (NT-ASGD).
        stop_early: stop when the last n evaluations have not improved on the best; not before the last of `depths`.
        depths: train at other depths: a list of [share of the epochs, depth], where a share is rounded down to whole
            epochs and the remaining epochs train at `num_layers`. A depth is an integer, or a range [lowest, highest]
            from which every step draws its own; validation is then at `num_layers`. A range may have the share 1: all
            epochs.
        precision: float32 or bfloat16 (mixed).
        evaluate_every: epochs between evaluations.
        evaluate_minutes: with `minutes`: also evaluate after every n minutes of training.
        test: at the end, evaluate the best model on the test split too; false for runs that only help to choose.
        evaluation: text only: streaming (exact, the default), or windows as in training, the authors' protocol.
        evaluation_batch: number of sequences, or of columns of a text, that are evaluated in parallel.
        seed: seed of all random numbers.
        device: auto, cpu, cuda, mps, ...
        shard: divide parameters, gradients and the optimiser's state among the processes (FSDP2), for models that are
            too large for every process to train a copy.
        on_nan: stop, or skip the step, when the loss is not a number.
        save_minutes: minutes between checkpoints within an epoch; 0: after every step.
        log_every: training steps between entries in metrics.jsonl.
        tensorboard: the same as the tracker tensorboard.
        trackers: also send the metrics to these trackers: tensorboard, wandb, mlflow, trackio. Each needs the extra of
            its name.
        sample: text only: number of generated tokens that the report shows; default 400.
    """

    epochs: int = 10
    minutes: float | None = None
    max_steps: int | None = None
    clock: ClockName = "wall"
    batch_size: int = 32
    steps: int | None = None
    random_windows: bool | None = None
    accumulate: int = 1
    optimiser: Literal["sgd", "adam", "adamw"] = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    schedule: Literal["constant", "plateau", "steps", "cosine", "linear"] = "constant"
    decay: float = 10.0
    decay_after: list[int] = field(default_factory=list)
    patience: int = 10
    warmup: float = 0.0
    average: bool = False
    stop_early: int | None = None
    depths: list[tuple[float, Depth]] = field(default_factory=list)
    precision: Literal["float32", "bfloat16"] = "float32"
    evaluate_every: int = 1
    evaluate_minutes: float | None = None
    test: bool = True
    evaluation: Literal["streaming", "windows"] | None = None
    evaluation_batch: int = 32
    seed: int = 0
    device: str = "auto"
    shard: bool = False
    on_nan: Literal["stop", "skip"] = "stop"
    save_minutes: float = 10.0
    log_every: int = 50
    tensorboard: bool = False
    trackers: list[str] = field(default_factory=list)
    sample: int | None = None

    def __post_init__(self) -> None:
        # YAML has no tuples
        self.depths = [(share, tuple(depth) if isinstance(depth, list) else depth) for share, depth in self.depths]

    def depth_in(self, epoch: int) -> Depth | None:
        """The depth of an epoch, counted from 0; None is the model's own, as in the last epoch unless a share is 1.

        >>> [TrainingConfig(epochs=5, depths=[(0.4, 2), (0.6, 4)]).depth_in(epoch) for epoch in range(5)]
        [2, 2, 4, None, None]
        >>> [TrainingConfig(epochs=3, depths=[(0.5, 2), (1, (1, 4))]).depth_in(epoch) for epoch in range(3)]
        [2, (1, 4), (1, 4)]
        """
        last = self.epochs - 1
        for share, depth in self.depths:
            if share == 1 or epoch < min(math.floor(share * self.epochs + 1e-9), last):
                return depth
        return None


@dataclass
class Config:
    """An experiment.

    Args:
        about: title, and the paper's results.
        data: the dataset.
        model: the model and its body.
        training: the options of training.
    """

    about: About = field(default_factory=About)
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def to_dict(self) -> dict[str, Any]:
        """As nested dictionaries, for YAML."""
        return asdict(self)
