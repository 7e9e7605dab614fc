"""`trellisnet evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from trellisnet.commands.arguments import take_positional


def evaluate(
    run: str,
    split: str = "test",
    model: Literal["best", "last"] = "best",
    evaluation: Literal["streaming", "windows"] | None = None,
    cache_size: int | None = None,
    cache_theta: float = 0.3,
    cache_share: float = 0.1,
    dynamic_rate: float | None = None,
    dynamic_decay: float = 0.02,
    dynamic_window: int = 20,
    limit: int | None = None,
) -> None:
    """Judge a trained model.

    A language model can also be judged with a continuous cache or by dynamic evaluation, which let it adapt to the
    text; such results are not comparable with others and are shown apart, with how they came about.

    Args:
        run: the folder of a run.
        split: valid or test.
        model: the best by validation, or that of the last epoch.
        evaluation: streaming, exact; or windows, as in training, the authors' way; default as the run did.
        cache_size: steps that a continuous cache remembers; default no cache.
        cache_theta: its sharpness.
        cache_share: its share in the mixture.
        dynamic_rate: learning rate of dynamic evaluation; default none.
        dynamic_decay: its decay towards the trained weights.
        dynamic_window: words between two of its steps.
        limit: judge only so many tokens at the beginning, with the cache or dynamic evaluation, which are slow.
    """
    from trellisnet.models.evaluation import ContinuousCache, DynamicEvaluation  # noqa: PLC0415
    from trellisnet.training.language_task import LanguageTask  # noqa: PLC0415
    from trellisnet.training.samples import evaluate_model  # noqa: PLC0415
    from trellisnet.training.trained import load_task  # noqa: PLC0415

    task = load_task(Path(run), model)
    if split not in task.splits:
        raise ValueError(f"--split must be one of {', '.join(task.splits)}, got {split!r}")
    adapting = cache_size is not None or dynamic_rate is not None
    if adapting and not isinstance(task, LanguageTask):
        raise ValueError("--cache_size and --dynamic_rate belong to language models")
    if limit is not None and not adapting:
        raise ValueError("--limit belongs to --cache_size or --dynamic_rate")
    if evaluation is not None and not isinstance(task, LanguageTask):
        raise ValueError("--evaluation belongs to language models")
    if not adapting:
        _show(evaluate_model(task, split, evaluation), split)
        print(f"({task.protocol(evaluation)})")
        return
    assert isinstance(task, LanguageTask)
    ids = [int(token) for token in task.data.splits[split][:limit]]
    cache = None if cache_size is None else ContinuousCache(cache_size, cache_theta, cache_share)
    dynamic = None if dynamic_rate is None else DynamicEvaluation(dynamic_rate, dynamic_decay)
    window = task.training.steps if dynamic is None else dynamic_window
    for with_options in (False, True):
        score = (
            task.model.score(ids, window=window, cache=cache, dynamic=dynamic)
            if with_options
            else task.model.score(ids)
        )
        _show({"loss": score.nll, "perplexity": score.perplexity, "bits": score.bits}, split)
        print(f"({score.protocol}{'' if limit is None else f', the first {limit} tokens'})")


def _show(metrics: dict[str, float], split: str) -> None:
    print(f"{split}: " + ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))


def prepare(parser: Any, arguments: list[str]) -> list[str]:
    """The run comes first, without a flag."""
    return take_positional("run", arguments)
