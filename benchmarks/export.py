"""Export every kind of model and head to ONNX, run the files, and compare them with torch; float32.

python benchmarks/export.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from jsonargparse import auto_cli

from trellisnet import TrellisClassifier, TrellisLM, TrellisRegressor
from trellisnet.models.export.programs import make_program

HEADS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "mos": {"head": "mos", "experts": 3},
    "adaptive": {"head": "adaptive", "cutoffs": [20, 60]},
    "cluster": {"head": "cluster", "cutoffs": [20, 60]},
}


def models(hidden_size: int, num_layers: int) -> Iterator[tuple[str, Any]]:
    """Language models with four heads, a classifier, and regressors of the last and of every step."""
    options: dict[str, Any] = {"dilation": [1, 2], "weight_norm": True}
    for name, head in HEADS.items():
        yield f"language, {name}", TrellisLM(100, hidden_size // 2, hidden_size, num_layers, **options, **head)
    yield "classifier", TrellisClassifier(5, hidden_size, num_layers, num_classes=10, **options)
    yield "regressor", TrellisRegressor(5, hidden_size, num_layers, num_values=3, **options)
    yield (
        "regressor, every step",
        TrellisRegressor(5, hidden_size, num_layers, num_values=3, each_step=True, **options),
    )


def numbers_in(path: Path) -> int:
    """Numbers that a file stores."""
    import onnx  # noqa: PLC0415  # an extra

    return sum(int(np.prod(tensor.dims)) for tensor in onnx.load(path).graph.initializer)


def measure(hidden_size: int = 100, num_layers: int = 8, length: int = 60) -> list[dict[str, Any]]:
    """One row per model and form: the largest difference over batches of 1, 2 and 7 sequences, and what is stored."""
    rows = []
    with TemporaryDirectory() as folder:
        for name, model in models(hidden_size, num_layers):
            weights = sum(each.numel() for each in make_program(model, None, False).parameters())
            for form, steps in (("step", None), ("sequence", length)):
                done = model.export(Path(folder) / "file.onnx", length=steps)
                rows.append({"model": name, "form": form, "difference": done.difference, "weights": weights})
                rows[-1]["stored"] = numbers_in(done.path)
    return rows


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_flush_denormal(True)
    print(f"{'model':24} {'form':9} {'difference':>10} {'weights':>9} {'stored':>9}")
    for row in auto_cli(measure):
        print("{model:24} {form:9} {difference:10.1e} {weights:9,} {stored:9,}".format(**row))
