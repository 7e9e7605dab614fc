"""Checks of the training options and of their combinations."""

from __future__ import annotations

from typing import get_args, get_type_hints

from trellisnet.core.checks import boolean, layer_count, non_negative, one_of, positive, positive_int, seed_number
from trellisnet.models.bodies import BODIES, chooses_depth
from trellisnet.training.config import Config, TrainingConfig
from trellisnet.training.trackers import check_tracker

FEWEST_STEPS = 10  # of random windows: half of it is the mean length of short ones, and 5 the length of the shortest


def check_config(config: Config, processes: int = 1) -> None:
    """Raise a ValueError that names the options if they are invalid or contradict each other."""
    training = config.training
    _check_numbers(training)
    _check_choices(training)
    parts = training.accumulate * processes
    if training.batch_size % parts:
        raise ValueError(
            f"training.batch_size must be a multiple of training.accumulate * processes = {parts}, "
            f"got {training.batch_size}"
        )
    if bool(training.decay_after) != (training.schedule == "steps"):
        raise ValueError(
            f"training.decay_after belongs to training.schedule=steps: got training.decay_after="
            f"{training.decay_after} and training.schedule={training.schedule}"
        )
    if training.momentum and training.optimiser != "sgd":
        raise ValueError(
            f"training.momentum belongs to training.optimiser=sgd: got training.momentum={training.momentum} and "
            f"training.optimiser={training.optimiser}"
        )
    for name in training.trackers:
        check_tracker("training.trackers", name)
    if training.tensorboard:
        check_tracker("training.trackers", "tensorboard")
    _check_depths(training)
    if training.depths and config.model.body in BODIES and not chooses_depth(config.model.body):
        raise ValueError(
            f"training.depths needs a body with a depth of each call, such as 'trellis': got {training.depths} and "
            f"model.body={config.model.body}"
        )


def _check_depths(training: TrainingConfig) -> None:
    shares = [share for share, _ in training.depths]
    if shares != sorted(set(shares)) or not all(0 < share <= 1 for share in shares):
        raise ValueError(
            f"training.depths must be [share of the epochs, depth] with rising shares between 0 and 1, "
            f"got {training.depths}"
        )
    for share, depth in training.depths:
        if not isinstance(depth, tuple):
            layer_count("a depth of training.depths", depth)
            if share == 1:
                raise ValueError(
                    f"training.depths: a share of 1 needs a range [lowest, highest], got the depth {depth}: "
                    f"set model.num_layers to train at one depth in all epochs"
                )
            continue
        if len(depth) != 2:
            raise ValueError(f"a range of training.depths must be [lowest, highest], got {list(depth)}")
        lowest, highest = (layer_count("a depth of training.depths", bound) for bound in depth)
        if lowest > highest:
            raise ValueError(f"a range of training.depths must be [lowest, highest] in this order, got {list(depth)}")


def _check_choices(training: TrainingConfig) -> None:
    hints = get_type_hints(TrainingConfig)
    for name in ("optimiser", "schedule", "precision", "on_nan", "clock"):
        one_of(f"training.{name}", getattr(training, name), get_args(hints[name]))
    if training.evaluation is not None:
        one_of("training.evaluation", training.evaluation, ("streaming", "windows"))


def _check_numbers(training: TrainingConfig) -> None:
    for name in ("epochs", "batch_size", "accumulate", "patience", "evaluate_every", "evaluation_batch"):
        positive_int(f"training.{name}", getattr(training, name))
    positive_int("training.log_every", training.log_every)
    seed_number("training.seed", training.seed)
    for name in ("learning_rate", "momentum", "weight_decay", "save_minutes"):
        non_negative(f"training.{name}", getattr(training, name))
    for name in ("minutes", "evaluate_minutes"):
        if getattr(training, name) is not None:
            positive(f"training.{name}", getattr(training, name))
    if training.evaluate_minutes is not None and training.minutes is None:
        raise ValueError(f"training.evaluate_minutes belongs to training.minutes: got {training.evaluate_minutes:g}")
    if training.clock != "wall" and training.minutes is None:
        raise ValueError(f"training.clock belongs to training.minutes: got {training.clock}")
    if training.minutes is not None and any(share < 1 for share, _ in training.depths):
        raise ValueError(
            f"training.depths counts epochs, and with training.minutes their number is not known: got "
            f"{training.depths} and training.minutes={training.minutes:g}"
        )
    if training.clip is not None:
        if isinstance(training.clip, (int, float)) and training.clip <= 0:
            raise ValueError(f"training.clip must be a number > 0, got {training.clip}")
        positive("training.clip", training.clip)
    for name in ("decay", "warmup"):
        non_negative(f"training.{name}", getattr(training, name))
    if not training.decay > 1:
        raise ValueError(f"training.decay must be a number > 1, because rates are divided by it, got {training.decay}")
    if not 0 <= training.warmup < 1:
        raise ValueError(f"training.warmup must be a share of all steps in [0, 1), got {training.warmup}")
    for name in ("average", "test", "tensorboard", "shard"):
        boolean(f"training.{name}", getattr(training, name))
    if training.random_windows is not None:
        boolean("training.random_windows", training.random_windows)
    if training.random_windows and training.steps is not None and training.steps < FEWEST_STEPS:
        raise ValueError(
            f"training.random_windows needs training.steps >= {FEWEST_STEPS}, because the shortest window has 5 steps, "
            f"got {training.steps}"
        )
    for name, minimum in (("stop_early", 1), ("steps", 1), ("max_steps", 1), ("sample", 0)):
        if getattr(training, name) is not None:
            positive_int(f"training.{name}", getattr(training, name), minimum)
