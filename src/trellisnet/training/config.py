"""Everything an experiment can choose, as typed dataclasses. Imports nothing heavy, so that `--help` is quick."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

TEXT_DEFAULTS: dict[str, Any] = {"steps": 64, "evaluation": "streaming", "sample": 400}  # of options that only text has


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


@dataclass
class ModelConfig:
    """The model: a TrellisLM on text, a TrellisClassifier or TrellisRegressor on sequences. What is not set has the
    model's own default; sizes that follow from the data are not set here.

    Args:
        body: trellis, or a baseline: lstm, gru.
        embedding_size: of a language model: channels of a word's vector.
        hidden_size: width of every layer, output channels included (the paper's tables count without them).
        num_layers: depth.
        output_size: channels that the output is read from.
        cell: tanh, relu, lstm or gru.
        kernel_size: taps of the convolution.
        dilation: steps between taps, a number or a cycle of numbers over the layers.
        bias: whether the kernel has one.
        groups: sizes of channel groups, for a mixed-group kernel.
        inject_every: the input enters the first of every so many layers.
        weight_norm: learn directions and lengths of the kernel's rows apart.
        init: uniform, or paper for the authors' N(0, 0.01).
        memory: store, or recompute for less memory at a third more work.
        hidden_dropout: of channels inside the trellis, one mask a sequence for all layers.
        weight_dropout: of entries of the kernels.
        drop_all_taps: let weight dropout act on the newest tap too.
        embedding_dropout: of whole words.
        input_dropout: of channels before the trellis.
        output_dropout: of channels after the trellis.
        head: of a language model: softmax, mos, adaptive or cluster.
        tied: whether head and embedding share their vectors.
        experts: softmaxes of the head mos.
        latent_dropout: of the head mos.
        cutoffs: where the clusters of the heads adaptive and cluster begin.
        aux_every: an auxiliary loss every so many layers.
        aux_weight: their weight.
        alpha: weight of the squared output in the loss.
        beta: weight of the squared change of the output in the loss.
        history: carry, repackage or discard; how training on text goes on from window to window.
        horizon: of discard: steps of each window that are context only.
    """

    body: str = "trellis"
    embedding_size: int | None = None
    hidden_size: int = 256
    num_layers: int = 8
    output_size: int | None = None
    cell: str | None = None
    kernel_size: int | None = None
    dilation: int | list[int] | None = None
    bias: bool | None = None
    groups: list[int] | None = None
    inject_every: int | None = None
    weight_norm: bool | None = None
    init: str | None = None
    memory: str | None = None
    hidden_dropout: float | None = None
    weight_dropout: float | None = None
    drop_all_taps: bool | None = None
    embedding_dropout: float | None = None
    input_dropout: float | None = None
    output_dropout: float | None = None
    head: str | None = None
    tied: bool | None = None
    experts: int | None = None
    latent_dropout: float | None = None
    cutoffs: list[int] | None = None
    aux_every: int | None = None
    aux_weight: float | None = None
    alpha: float | None = None
    beta: float | None = None
    history: str | None = None
    horizon: int | None = None

    def chosen(self) -> dict[str, Any]:
        """The options that are set, but for the body."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "body"}
        return {name: value for name, value in given.items() if value is not None}


@dataclass
class TrainingConfig:
    """How it is learned.

    Args:
        epochs: passes over the training split.
        batch_size: sequences, or columns of a text, of all processes together.
        steps: of text: steps of a window that count; default 64.
        accumulate: into so many parts a batch is cut, one after the other, to save memory.
        optimiser: sgd, adam or adamw.
        learning_rate: at its highest.
        momentum: of sgd.
        weight_decay: of all optimisers; decoupled in adamw.
        clip: largest norm of the gradient.
        schedule: constant; plateau, divided by `decay` whenever validation has not improved on the best of all but
            the last `patience` epochs; steps, divided by `decay` after the epochs `decay_after`; cosine; linear; or
            one-cycle, up over `warmup` and down to nothing.
        decay: what plateau and steps divide by.
        decay_after: epochs of steps.
        patience: evaluations of plateau and of `average`.
        warmup: share of all steps over which the rate rises, in every schedule.
        average: switch to averaged weights when validation stalls (NT-ASGD).
        stop_early: stop when the best evaluation is older than so many; not before the model's own depth is trained.
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
    schedule: Literal["constant", "plateau", "steps", "cosine", "linear", "one-cycle"] = "constant"
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
