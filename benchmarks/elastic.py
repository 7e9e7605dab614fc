"""One run by 4, 2, 1 and 4 processes, one after the other, against one process throughout.

python benchmarks/elastic.py FOLDER      writes two runs to the folder, which must be new
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STAGES, STEPS = (4, 2, 1, 4), 13  # processes, and steps of each but the last
MODEL = ["--model.hidden_size", "24", "--model.embedding_size", "12", "--model.num_layers", "4"]
MODEL += ["--model.hidden_dropout", "0", "--model.output_dropout", "0"]  # each process draws its own masks
TRAINING = ["--training.steps", "16", "--training.sample", "0", "--training.log_every", "1", "--training.epochs", "2"]
TRAINING += ["--training.batch_size", "8", "--training.accumulate", "2", "--training.depths", "[[1, [2, 5]]]"]


def command(processes: int, arguments: list[str]) -> list[str]:
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes), "-m"]
    return [sys.executable, *(start if processes > 1 else ["-m"]), "trellisnet", "train", *arguments]


def losses(run: Path) -> list[float]:
    """The loss of each step so far."""
    path = run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    entries = [json.loads(line) for line in lines if line.endswith("\n")]
    return [entry["loss"] for entry in entries if "loss" in entry]


def train(processes: int, arguments: list[str], run: Path, until: int | None) -> None:
    """Train to the end, or until a number of steps; then ask the run to save and stop."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command(processes, arguments), env=environment) as process:
        while process.poll() is None and (until is None or len(losses(run)) < until):
            time.sleep(0.02)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    text = folder / "text.txt"
    text.write_text("".join(f"a line of {i * i % 17} words and {i % 5}\n" for i in range(700)), encoding="utf-8")
    recipe = ["my-text", "--data.options.path", str(text), *MODEL, *TRAINING]
    one, many = folder / "one", folder / "many"
    train(1, [*recipe, "--to", str(one)], one, None)
    done = []
    for stage, processes in enumerate(STAGES):
        arguments = ["--resume", str(many)] if stage else [*recipe, "--to", str(many)]
        train(processes, arguments, many, None if stage == len(STAGES) - 1 else len(losses(many)) + STEPS)
        done.append(f"{processes} processes until step {len(losses(many))}")
    pairs = list(zip(losses(one), losses(many), strict=True))
    print(", ".join(done))
    for count in (50, len(pairs)):
        print(f"largest difference of a loss in {count} steps: {max(abs(a - b) for a, b in pairs[:count]):.1e}")


if __name__ == "__main__":
    main()
