"""`trellisnet evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trellisnet.commands.printing import print_table
from trellisnet.core.checks import positive, positive_int
from trellisnet.training.metrics import in_one_line

if TYPE_CHECKING:
    from trellisnet.training.tasks.base import Task

DYNAMIC_WINDOW = 20  # tokens per update of dynamic evaluation


def evaluate(
    run: str,
    *,
    split: str = "test",
    model: Literal["best", "last"] = "best",
    evaluation: Literal["streaming", "windows"] | None = None,
    depths: str | None = None,
    cache_size: int | None = None,
    cache_theta: float | None = None,
    cache_share: float | None = None,
    dynamic_rate: float | None = None,
    dynamic_decay: float | None = None,
    dynamic_window: int | None = None,
    limit: int | None = None,
    backtest: int | None = None,
    output: str | None = None,
) -> None:
    """Evaluate a trained model.

    A language model can also be evaluated with a continuous cache or by dynamic evaluation, which adapt it to the text.
    These results are not comparable with others; they are printed separately, with their protocol.

    Args:
        run: folder of a run, or name of a pretrained model, such as copy-memory.
        split: valid or test.
        model: the best model by validation, or the one of the last epoch.
        evaluation: streaming (exact), or windows as in training, the authors' protocol; default that of the run.
        depths: numbers of layers, such as 1,2,4,8: the metrics at each of them, where possible in one pass; default the
            model's own.
        cache_size: number of steps in a continuous cache; default no cache.
        cache_theta: sharpness of the cache; default 0.3.
        cache_share: share of the cache in the mixture; default 0.1.
        dynamic_rate: learning rate of dynamic evaluation; default no dynamic evaluation.
        dynamic_decay: decay towards the trained weights; default 0.02.
        dynamic_window: tokens per update of dynamic evaluation; default 20.
        limit: evaluate only the first n tokens; only with a cache or dynamic evaluation, which are slow.
        backtest: of forecasts: forecast from n origins in each series of the split, from the first to the last at equal
            distances; print the errors per origin and per step, those of naive forecasts beside.
        output: of a backtest: also write all its numbers to this JSON file.
    """
    _check_belong("--cache_size", cache_size, cache_theta=cache_theta, cache_share=cache_share)
    _check_belong("--dynamic_rate", dynamic_rate, dynamic_decay=dynamic_decay, dynamic_window=dynamic_window)
    _check_belong("--backtest", backtest, output=output)
    adapting = cache_size is not None or dynamic_rate is not None
    _check_belong("--cache_size or --dynamic_rate", adapting or None, limit=limit)
    if adapting and evaluation is not None:
        raise ValueError("--evaluation cannot be chosen with --cache_size or --dynamic_rate, which read a stream")
    if adapting and depths is not None:
        raise ValueError("--depths cannot be chosen with --cache_size or --dynamic_rate")
    for name, option in {"cache_size": cache_size, "dynamic_rate": dynamic_rate, "depths": depths}.items():
        if backtest is not None and option is not None:
            raise ValueError(f"--{name} cannot be chosen with --backtest")
    chosen = None if depths is None else _numbers("--depths", depths)
    if limit is not None:
        positive_int("--limit", limit, minimum=2)
    if dynamic_window is not None:
        positive_int("--dynamic_window", dynamic_window)
    if dynamic_rate is not None:
        positive("--dynamic_rate", dynamic_rate)

    from trellisnet.models.evaluation import ContinuousCache, DynamicEvaluation  # noqa: PLC0415
    from trellisnet.training.trained import load_task  # noqa: PLC0415

    task = load_task(Path(run), model)
    if split not in task.splits:
        raise ValueError(f"--split must be one of {', '.join(task.splits)}, got {split!r}")
    if backtest is not None:
        task.protocol(evaluation)
        _print_backtest(task, backtest, split, output)
        return
    if not adapting:
        protocol = task.protocol(evaluation)
        if chosen is None:
            _show(task.evaluate_alone(split, evaluation), split)
            for name, errors in task.naive(split).items():
                _show(errors, f"{split}, naive forecast, {name}")
        else:
            for depth, metrics in task.evaluate_depths(split, chosen, evaluation).items():
                _show(metrics, f"{split}, depth {depth}")
        print(f"({protocol})")
        return
    cache = None if cache_size is None else ContinuousCache(cache_size, **_given(theta=cache_theta, share=cache_share))
    dynamic = None if dynamic_rate is None else DynamicEvaluation(dynamic_rate, **_given(decay=dynamic_decay))
    window = None if dynamic is None else dynamic_window or DYNAMIC_WINDOW
    for adaptation in ({}, {"window": window, "cache": cache, "dynamic": dynamic}):
        metrics, protocol = task.evaluate_adapting(split, limit, **adaptation)
        _show(metrics, split)
        print(f"({protocol})")


def _print_backtest(task: Task, origins: int, split: str, output: str | None) -> None:
    """Print the tables of a backtest, and write its JSON file."""
    from trellisnet.training.backtest import backtest_task  # noqa: PLC0415
    from trellisnet.training.runs import write_json  # noqa: PLC0415

    found = backtest_task(task, origins, split)
    metrics = {metric.name: metric for metric in (task.metric, *task.others)}
    shown = ["pinball" if "pinball" in metrics else "mse", "mae"]  # the file has all of them
    series = list(found.origins)
    steps = [f"{step:,}" for step in found.origins[series[0]]] if len(series) == 1 else []
    tables = {
        "origin": (found.by_origin, [f"{i + 1}" for i in range(origins)], {"after step": steps} if steps else {}),
        "step": (found.by_step, [f"{i + 1}" for i in range(found.horizon)], {}),
    }
    for title, (errors, names, beside) in tables.items():
        kept = {(name, metric): errors[name][metric] for metric in shown for name in errors}
        head = [title, *beside, *(f"{metric}, {name}" for name, metric in kept)]
        columns = [names, *beside.values()]
        columns += [[metrics[metric].formatted(value) for value in each] for (_, metric), each in kept.items()]
        print_table(head, list(zip(*columns, strict=True)), ())
        print()
    for name, means in found.overall.items():
        _show(means, f"{split}, {name}" if name == "model" else f"{split}, naive forecast, {name}")
    print(f"({found.protocol})")
    if output is not None:
        write_json(Path(output), found.facts())
        print(f"all numbers: {output}")


def _check_belong(owner: str, value: float | None, **options: float | str | None) -> None:
    """Raise a ValueError for options that require another option, if it is not given."""
    for name, option in options.items():
        if option is not None and value is None:
            raise ValueError(f"--{name} belongs to {owner}, which is not given")


def _numbers(name: str, text: str) -> list[int]:
    """Parse integers >= 1 that are separated by commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise ValueError(f"{name} must be integers >= 1 separated by commas, such as 1,2,4,8, got {text!r}")
    return [int(part) for part in parts]


def _given(**options: float | None) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _show(metrics: dict[str, float], split: str) -> None:
    print(f"{split}: {in_one_line(metrics)}")
