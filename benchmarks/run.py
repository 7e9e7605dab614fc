"""Speed, memory and streaming as ratios against plain peers, all in one run: `make bench`.

python benchmarks/run.py                     everything, into benchmarks/results.json
python benchmarks/run.py training streaming  some sections only
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from language import generation, vocabulary
from loop import loop
from measure import executed_products, interleaved, peak_memory, products, share_of_peak, training_step
from paths import depth_costs, fixed_point, streaming_paths, training_paths
from peers import SHAPES, PlainTrellis, Shape
from trellisnet import TrellisNet

CONTESTANTS = ("plain", "store", "recompute", "lstm", "tcn")
Rows = list[dict[str, Any]]


def training() -> Rows:
    """A training step of each shape. `speedup` is against the plain conv1d trellis network.

    `of peak` is the rate of its products as convolutions count them, against that of large matrix products; `executed`
    is the same for the products that are really made, which are fewer.
    """
    rows = []
    for shape in SHAPES.values():
        steps = {name: training_step(name, shape) for name in CONTESTANTS}
        seconds = interleaved(steps, rounds=5)
        share = share_of_peak(steps["store"], shape)
        executed = share * executed_products(steps["store"]) / products(shape)
        for name in CONTESTANTS:
            rows.append({"shape": shape.name, "contestant": name, "seconds": round(seconds[name], 4)})
            rows[-1]["speedup"] = round(seconds["plain"] / seconds[name], 2)
            rows[-1]["of peak"] = round(share, 3) if name == "store" else ""
            rows[-1]["executed"] = round(executed, 3) if name == "store" else ""
    return rows


def memory() -> Rows:
    """Peak memory of a training step, each contestant in a process of its own."""
    rows = []
    for shape in SHAPES.values():
        peaks = {name: peak_memory(name, shape) for name in CONTESTANTS}
        for name, peak in peaks.items():
            rows.append({"shape": shape.name, "contestant": name, "MB": round(peak / 2**20)})
            rows[-1]["of plain"] = round(peak / peaks["plain"], 3)
    return rows


def streaming() -> Rows:
    """One step of a stream (B 1), against the plain network over the last 110 steps and against bare products."""
    rows = []
    for inputs, hidden, layers in ((400, 700, 58), (400, 256, 32)):
        rows += _stream(inputs, hidden, layers)
    return rows


def _stream(inputs: int, hidden: int, layers: int) -> Rows:
    net = TrellisNet(inputs, hidden, layers).eval()
    plain = PlainTrellis(Shape("stream", inputs, hidden, layers, 110, 1))
    columns = torch.randn(1, inputs, 110)
    newest, vector = torch.randn(4 * hidden, hidden), torch.randn(hidden)
    x = torch.randn(4000, 1, inputs)
    states = {history: net(x[:history])[1] for history in (10, 4000)}

    def step(history: int) -> Tensor:
        y, states[history] = net(x[:1], states[history])
        assert isinstance(y, Tensor)
        return y

    def bare() -> None:
        for _ in range(layers):
            torch.mv(newest, vector)

    contestants = {
        "bare products": bare,
        "step after 10": lambda: step(10),
        "step after 4000": lambda: step(4000),
    }
    with torch.no_grad():
        seconds = interleaved(contestants, rounds=5)
        seconds |= interleaved({"plain, 110 steps again": lambda: plain(columns)}, rounds=5)
    return [
        {
            "hidden x layers": f"{hidden} x {layers}",
            "contestant": name,
            "ms": round(1000 * each, 3),
            "speedup": round(seconds["plain, 110 steps again"] / each, 1),
            "times bare": round(each / seconds["bare products"], 2),
        }
        for name, each in seconds.items()
    ]


def show(name: str, rows: Rows) -> None:
    """Print a section as a table."""
    columns = list(rows[0])
    widths = [max(len(column), *(len(str(row[column])) for row in rows)) for column in columns]
    print(f"\n{name}")
    for line in [dict(zip(columns, columns, strict=True)), *rows]:
        print("  ".join(f"{line[c]!s:>{w}}" for c, w in zip(columns, widths, strict=True)))


def processor() -> str:
    """The processor's name, where the system tells."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    widest = torch.backends.cpu.get_cpu_capability()
    return f"{names[0] if names else platform.machine()}, {widest}"


def main() -> None:
    torch.set_flush_denormal(True)
    sections = {
        "training": training,
        "memory": memory,
        "streaming": streaming,
        "training-paths": training_paths,
        "streaming-paths": streaming_paths,
        "depth-costs": depth_costs,
        "fixed-point": fixed_point,
        "generation": generation,
        "vocabulary": vocabulary,
        "loop": loop,
    }
    chosen = sys.argv[1:] or list(sections)
    if unknown := set(chosen) - set(sections):
        sys.exit(f"unknown section {', '.join(sorted(unknown))}: choose from {', '.join(sections)}")
    path = Path(__file__).with_name("results.json")
    results = json.loads(path.read_text()) if path.exists() else {}
    if chosen == list(sections):  # sections that are measured alone may be another machine's: the pages name it
        results["machine"] = {
            "processor": processor(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
    for name in chosen:
        results[name] = sections[name]()
        show(name, results[name])
        path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
