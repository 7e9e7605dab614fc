"""Bits and size of a language model's ONNX files, float32 and int8, on the test split of its data, by onnxruntime.

python benchmarks/int8.py runs/char-ptb-small-1
"""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from jsonargparse import auto_cli
from numpy.typing import NDArray

from trellisnet.models.export import export_model
from trellisnet.training.trained import load_model, load_task


def bits(file: Path, text: NDArray[Any], length: int) -> float:
    """Mean bits of the tokens of a text, streamed in columns of a length that start from a state of zeros."""
    import onnxruntime  # noqa: PLC0415  # an extra

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    columns = text[: len(text) // length * length].reshape(-1, length).astype(np.int64)
    rows, total = np.arange(len(columns)), 0.0
    state = {
        each.name: np.zeros([len(columns) if size == "batch" else size for size in each.shape], np.float32)
        for each in session.get_inputs()
        if each.name != "ids"
    }
    for step in range(length - 1):
        log_prob, *after = session.run(None, {"ids": columns[:, step], **state})
        state = dict(zip(state, after, strict=True))
        total -= float(log_prob[rows, columns[:, step + 1]].sum(dtype=np.float64))
    return total / len(columns) / (length - 1) / math.log(2)


def measure(run: str, length: int = 1000) -> list[dict[str, Any]]:
    """One row per file: its size in bytes, and the bits per token."""
    model, _ = load_model(Path(run))
    text, rows = load_task(Path(run)).data.splits["test"], []
    with TemporaryDirectory() as folder:
        for name in ("float32", "int8"):
            done = export_model(model, Path(folder) / f"{name}.onnx", int8=name == "int8")
            found = bits(done.path, np.asarray(text), length)
            rows.append({"file": name, "bytes": done.size, "bits": found})
            print(f"{name:8} {done.size:10,} bytes, {found:.4f} bits per token", flush=True)
    return rows


if __name__ == "__main__":
    auto_cli(measure)
