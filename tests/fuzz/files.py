"""Fuzz of what reads files and data: tables, arrays, recipes, runs, `fit` and `predict`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.harness import Draw, Report, captured, judge
from fuzz.options import spoil
from trellisnet import TrainingConfig, TrellisClassifier, TrellisRegressor, fit, predict
from trellisnet.cli import main
from trellisnet.data import from_arrays, load
from trellisnet.training.reading import read_config
from trellisnet.training.recipes import load_recipe

REFUSALS = (ValueError, TypeError, OSError)


class Files:
    """Files of every form that the package reads, and a small finished run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rows = [f"{i},{t},{(i * 7 + t) % 5 - 1.5},{t % 3},{'ab'[i % 2]}" for i in range(12) for t in range(4 + i % 3)]
        self.table = self._write("table.csv", "\n".join(["id,t,x,z,kind", *rows]) + "\n")
        days = [f"2024-01-{day:02d},{day % 7}" for day in range(1, 31)]
        self.times = self._write("times.csv", "\n".join(["day,x", *days]) + "\n")
        head = "@problemName small\n@univariate true\n@classLabel true a b\n@data\n"
        self.ts = self._write("small_TRAIN.ts", head + "".join(f"{i},2,{i % 3}:{'ab'[i % 2]}\n" for i in range(12)))
        self.text = self._write("text.txt", "".join(f"line {i * i % 17} of {i % 5}\n" for i in range(120)))
        self.recipe = self._write("own.yaml", "extends: adding\nmodel:\n  hidden_size: 4\ntraining:\n  epochs: 1\n")
        self.arrays = folder / "arrays.npz"
        values = np.arange(120, dtype=np.float32).reshape(10, 6, 2) % 7
        np.savez(self.arrays, values=values, label=np.arange(10) % 2)
        self.run = folder / "run"
        small = ["--model.hidden_size", "4", "--model.num_layers", "1", "--training.epochs", "1"]
        small += ["--training.batch_size", "4"]
        flags = ["--data.options.values", "[x,z]", "--data.options.series", "id", "--data.options.label", "kind"]
        with captured() as (_, err):
            path = ["--data.options.path", str(self.table)]
            code = main(["train", "my-labels", *path, *flags, *small, "--to", str(self.run)])
        assert code == 0, err.getvalue()

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path


def damage(draw: Draw, path: Path, to: Path) -> Path:
    """A copy of a file with some bytes changed, removed, repeated or inserted."""
    content = bytearray(path.read_bytes())
    odd = [
        b"nan",
        b"",
        b"\n\n",
        b",",
        b'"',
        b"\x00",
        b"\xff\xfe",
        b"1e999",
        b"-",
        b": ",
        b"null",
        b"[",
        b"#",
        b"\t",
        b"x",
    ]
    for _ in range(draw.randint(1, 3)):
        start = draw.randrange(len(content) + 1)
        end = min(len(content), start + draw.choice([0, 0, 1, 2, 8, 1000]))
        content[start:end] = draw.choice([*odd, content[:20], bytes([draw.randrange(256)])])
    to.write_bytes(content)
    return to


def tables(draw: Draw, report: Report, files: Files) -> None:
    """Load own series, texts and arrays, damaged or not, with right and wrong options."""
    kind = draw.choice(["classification", "forecasting", "regression", "arrays", "ts", "text"])
    path = {"forecasting": files.times, "arrays": files.arrays, "ts": files.ts, "text": files.text}.get(
        kind, files.table
    )
    name = {"ts": "ts", "text": "text"}.get(kind, "series")
    options: dict[str, Any] = {"path": path}
    if name == "series":
        options["task"] = "classification" if kind == "arrays" else kind
    if kind in ("classification", "regression"):
        options |= {"values": ["x", "z"], "series": "id", "time": draw.choice([None, "t"])}
        options |= {"label": "kind"} if kind == "classification" else {"targets": ["z"]}
    if kind == "forecasting":
        options |= {"values": ["x"], "window": draw.randint(1, 6), "horizon": draw.randint(1, 2), "time": "day"}
    if name == "series" and draw.chance(0.3):
        options["fill"] = draw.choice(["forward", "linear", "zero"])
    if draw.chance(0.6):
        options["path"] = damage(draw, path, files.folder / f"damaged-{path.name}")
    if draw.chance(0.3):
        others = ["values", "label", "series", "time", "window", "horizon", "separator", "decimal", "encoding", "fill"]
        others += ["season", "classes", "standardise", "split", "time_format", "task", "path", "targets", "future"]
        options[draw.choice(others)] = draw.anything()

    def call() -> None:
        data = load(name, **options)
        if name != "text":
            for batch in data.batches("train", 4):
                assert np.isfinite(batch.inputs.numpy()).all(), "inputs that are no numbers"

    judge(report, f"load({name!r}, {options})", call, allowed=REFUSALS)


def recipes(draw: Draw, report: Report, files: Files) -> None:
    """Read a damaged recipe."""
    path = damage(draw, draw.choice([files.recipe, files.run / "config.yaml"]), files.folder / "damaged.yaml")
    judge(report, path.read_bytes().decode(errors="replace"), _reader(path), allowed=REFUSALS)


def _reader(path: Path) -> Callable[[], Any]:
    return lambda: read_config(load_recipe(str(path)), str(path))


def runs(draw: Draw, report: Report, files: Files) -> None:
    """Predict with a run of which one file is damaged."""
    run = files.folder / "damaged-run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(files.run, run)
    names = ["config.yaml", "task.json", "best/config.json", "best/model.safetensors", "result.json", "metrics.jsonl"]
    path = run / draw.choice([name for name in names if (run / name).exists()])
    damage(draw, path, path)
    sequences = [np.zeros((4, 2), dtype=np.float32)]
    judge(report, f"predict with a damaged {path.name}", lambda: predict(run, sequences), allowed=REFUSALS)


def arrays(draw: Draw, report: Report, files: Files) -> None:
    """`from_arrays`, and `predict` on any input."""
    x: Any = draw.choice([np.zeros((6, 4, 2)), np.zeros((6, 4)), [np.zeros((3, 2))] * 6, np.full((6, 4, 2), np.nan)])
    y: Any = draw.choice([np.arange(6) % 3, ["a", "b"] * 3, np.zeros(6), np.zeros((6, 2)), np.zeros((6, 4, 1))])
    options: dict[str, Any] = {"valid": draw.choice([0.2, 0.5, (x, y)])}
    if draw.chance(0.5):
        x, y = draw.choice([(x, draw.anything()), (draw.anything(), y), (x[:3], y), (x, [None] * 6)])
    if draw.chance(0.4):
        options[draw.choice(["valid", "test", "classes", "seed"])] = draw.anything()
    if draw.chance(0.5):
        judge(report, f"from_arrays({x!r}, {y!r}, {options})", lambda: from_arrays(x, y, **options))
    else:
        judge(report, f"predict(run, {x!r})", lambda: predict(files.run, x), allowed=REFUSALS)


def training(draw: Draw, report: Report, files: Files) -> None:
    """`fit` with right and wrong options of training."""
    kinds = _training_kinds()
    options = {"epochs": 1, "batch_size": 4, "device": "cpu", "test": False}
    for name, value in (("optimiser", "sgd"), ("clip", 1.0), ("accumulate", 2), ("warmup", 0.5), ("average", True)):
        if draw.chance(0.2):
            options[name] = value
    wrong = spoil(draw, options, kinds)
    if wrong is not None and options[wrong] is None:
        wrong = None
    folder = files.folder / "fitted"
    shutil.rmtree(folder, ignore_errors=True)
    x = np.random.default_rng(0).normal(size=(8, 3, 1)).astype(np.float32)
    model = draw.choice([lambda: TrellisClassifier(1, 2, 1, 2), lambda: TrellisRegressor(1, 2, 1)])()
    y = np.arange(8) % 2 if isinstance(model, TrellisClassifier) else x[:, 0]

    def call() -> None:
        with captured():
            fitted = fit(model, (x, y), TrainingConfig(**options), folder, valid=0.25)
        assert fitted.metrics["valid"], "no metrics"

    judge(report, f"fit(..., TrainingConfig({options}))", call, wrong=wrong, names=options, allowed=REFUSALS)


def _training_kinds() -> dict[str, str]:
    sizes = ["epochs", "batch_size", "accumulate", "patience", "evaluate_every", "evaluation_batch", "log_every"]
    sizes += ["stop_early", "steps"]
    weights = ["learning_rate", "momentum", "weight_decay", "save_minutes"]
    texts = ["optimiser", "schedule", "precision", "on_nan", "clock", "evaluation", "device"]
    kinds = dict.fromkeys(sizes, "size") | dict.fromkeys(weights, "weight") | dict.fromkeys(texts, "text")
    kinds |= {"seed": "count", "sample": "count", "clip": "positive", "minutes": "positive", "warmup": "probability"}
    return kinds | {"average": "flag", "test": "flag", "tensorboard": "flag"}


FUZZES: dict[Callable[[Draw, Report, Files], None], int] = {tables: 8, recipes: 4, runs: 2, arrays: 4, training: 1}
