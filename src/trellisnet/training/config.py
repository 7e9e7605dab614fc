"""Everything an experiment can choose, as typed dataclasses. Imports nothing heavy, so that `--help` is quick."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, is_dataclass, make_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from typing_extensions import Self

from trellisnet.data.kinds import Kind
from trellisnet.models.bodies import BODIES, body_options
from trellisnet.models.options import LanguageOptions, SequenceOptions

TEXT_DEFAULTS: dict[str, Any] = {"steps": 64, "evaluation": "streaming", "sample": 400}  # of options that only text has
FOLLOWS = ("staggered",)  # options of a body that follow from others


@dataclass
class About:
    """What an experiment is, and what the paper reports for it.

    Args:
        title: one line.
        metric: what the result is: perplexity, bits, accuracy or mse.
        paper_result: the paper's, on the test split.
        paper_parameters: the paper's count, in millions.
    """

    title: str = ""
    metric: Literal["perplexity", "bits", "accuracy", "mse"] | None = None
    paper_result: float | None = None
    paper_parameters: float | None = None


@dataclass
class DataConfig:
    """What is learned from.

    Args:
        name: a dataset: ptb-word, ptb-char, wikitext-2, wikitext-103, seq-mnist, perm-mnist, seq-cifar10, copy-memory,
            adding, python-library, or the user's own text or series.
        root: a folder to look for a benchmark's files first; then $TRELLISNET_DATA and the user's cache.
        options: further options of the dataset, such as path, kind, steps.
    """

    name: str = "python-library"
    root: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class ModelConfig:
    """What every model has. `model_config` adds the options of a body and of the model around it.

    Args:
        body: the net between input and head: a trellis network, or a baseline.
    """

    body: str = "trellis"

    if TYPE_CHECKING:  # the options are those of the class that `model_config` makes

        def __getattr__(self, name: str) -> Any: ...

    def chosen(self) -> dict[str, Any]:
        """The options that differ from their defaults, but for the body: what the functions of `models.build` take."""
        names = [option.name for option in fields(self) if getattr(self, option.name) != option.default]
        return {name: getattr(self, name) for name in names if name != "body"}

    def changed(self, **options: Any) -> Self:
        """A copy with other values of some options."""
        return replace(self, **options)


@dataclass(kw_only=True)
class LanguageConfig(ModelConfig):
    """What every language model has.

    Args:
        embedding_size: channels of a word's vector; default `hidden_size`, or for copy-memory one per symbol.
    """

    embedding_size: int | None = None


@dataclass(kw_only=True)
class GivenModel(ModelConfig):
    """A model that was given in Python: a record, from which it cannot be built.

    Args:
        body: the name of its body, or the class of a body or model of the user's own.
        options: what the model was built with.
    """

    options: dict[str, Any]


def around_body(kind: Kind) -> tuple[type[ModelConfig], type[SequenceOptions]]:
    """The declarations of a model's options but for those of its body, for a kind of data."""
    return (ModelConfig, SequenceOptions) if kind == "sequences" else (LanguageConfig, LanguageOptions)


@cache
def model_config(body: str, kind: Kind) -> type[Any]:
    """The dataclass of a model's configuration, made of the declarations of its options.

    Args:
        body: one of `BODIES`.
        kind: of the data.

    >>> model_config("lstm", "sequences")(hidden_size=8, dropout=0.0).chosen()
    {'hidden_size': 8}
    """
    base, around = around_body(kind)
    names: Any = Literal[tuple(BODIES)]
    options: dict[str, Any] = {"body": (names, field(default=body))}
    for declared in (around, body_options(body)):
        hints = get_type_hints(declared, localns={"Cell": str})  # YAML can name a cell, and not hold one
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
    """What the docstrings of a function, or of a dataclass and its bases, say of each argument."""
    from docstring_parser import parse  # noqa: PLC0415

    texts = {}
    for owner in reversed(getattr(declared, "__mro__", (declared,))):
        told = parse(owner.__doc__ or "").params
        texts.update({each.arg_name: " ".join((each.description or "").split()) for each in told})
    if is_dataclass(declared):
        texts.update({option.name: option.metadata["help"] for option in fields(declared) if option.metadata})
    return texts


@dataclass
class TrainingConfig:
    """How it is learned.

    Args:
        epochs: passes over the training split.
        batch_size: sequences, or columns of a text, of all processes together.
        steps: of text: steps of a window that count; default 64.
        accumulate: cut each batch into n parts, one after the other, to save memory.
        optimiser: sgd, adam or adamw.
        learning_rate: at its highest.
        momentum: of sgd.
        weight_decay: of all optimisers; decoupled in adamw.
        clip: largest norm of the gradient.
        schedule: constant; plateau, divided by `decay` whenever validation has not improved on the best of all but
            the last `patience` epochs; steps, divided by `decay` after the epochs `decay_after`; cosine or linear, down
            to 0 at the end.
        decay: what plateau and steps divide by.
        decay_after: epochs of steps.
        patience: evaluations of plateau and of `average`.
        warmup: share of all steps over which the rate rises, in every schedule.
        average: switch to averaged weights when validation stalls (NT-ASGD).
        stop_early: stop when the last n evaluations did not improve on the best; not before the model's own depth is
            trained.
        depths: train at another depth for a share of the epochs, rounded down to whole ones, as a list of
            [share, depth]; then at `num_layers`.
        precision: float32 or bfloat16 (mixed).
        evaluate_every: epochs between evaluations.
        evaluation: of text: streaming, exact, the default; or windows, the way of the training windows, as the
            authors evaluate.
        evaluation_batch: sequences, or columns of a text, that are evaluated side by side.
        seed: of everything random.
        device: auto, cpu, cuda, mps, ...
        on_nan: stop, or skip the step, when the loss is not a number.
        save_minutes: between checkpoints within an epoch; 0: after every step.
        log_every: training steps between entries in the metrics.
        tensorboard: write the metrics for TensorBoard too; needs the extra `tensorboard`.
        sample: of text: characters or words that the report shows of the model's own writing; default 400.
    """

    epochs: int = 10
    batch_size: int = 32
    steps: int | None = None
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
    depths: list[tuple[float, int]] = field(default_factory=list)
    precision: Literal["float32", "bfloat16"] = "float32"
    evaluate_every: int = 1
    evaluation: Literal["streaming", "windows"] | None = None
    evaluation_batch: int = 32
    seed: int = 0
    device: str = "auto"
    on_nan: Literal["stop", "skip"] = "stop"
    save_minutes: float = 10.0
    log_every: int = 50
    tensorboard: bool = False
    sample: int | None = None

    def __post_init__(self) -> None:
        self.depths = [(share, depth) for share, depth in self.depths]  # YAML knows no tuples

    def depth_in(self, epoch: int) -> int | None:
        """The depth of an epoch, counted from 0; None is the model's own, which the last epoch always has.

        >>> [TrainingConfig(epochs=5, depths=[(0.4, 2), (0.6, 4)]).depth_in(epoch) for epoch in range(5)]
        [2, 2, 4, None, None]
        """
        last = self.epochs - 1
        ends = ((min(math.floor(share * self.epochs + 1e-9), last), depth) for share, depth in self.depths)
        return next((depth for end, depth in ends if epoch < end), None)


@dataclass
class Config:
    """An experiment.

    Args:
        about: what it is.
        data: what is learned from.
        model: what learns.
        training: how.
    """

    about: About = field(default_factory=About)
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def to_dict(self) -> dict[str, Any]:
        """As nested dictionaries, for YAML."""
        return asdict(self)
