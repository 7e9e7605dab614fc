"""SIGKILL at random moments of the whole life of runs: start, steps, evaluation, saving, finishing.

python benchmarks/kills.py FOLDER [KILLS [SEED]]      200 kills of runs of three tasks

Each run is killed up to five times, and resumed each time; then it goes on to its end, which must be that of a run that
was not killed, bit by bit. Processes are forked from one that has imported everything, so that few kills hit imports.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from trellisnet.cli import main as trellisnet
from trellisnet.training import fit  # noqa: F401  # imported before the forks
from trellisnet.training.reporting import report  # noqa: F401

PER_RUN = 5
COMMON = ["--training.epochs", "2", "--training.log_every", "1", "--training.save_minutes", "0.0005"]
SIZES = ["--model.hidden_size", "12", "--model.num_layers", "3"]


def recipes(folder: Path) -> dict[str, list[str]]:
    """The command lines of the tasks: language modelling, regression, classification of ragged series."""
    text, table = folder / "text.txt", folder / "series.csv"
    text.write_text("".join(f"line {i * i % 97} of {i % 13}\n" for i in range(300)), encoding="utf-8")
    rows = [f"{i},{t},{(i * 7 + t * t) % 11},{'ab'[i % 2]}" for i in range(60) for t in range(4 + i % 5)]
    table.write_text("\n".join(["id,t,x,kind", *rows]) + "\n", encoding="utf-8")
    words = ["my-text", "--data.options.path", str(text), "--model.embedding_size", "8", "--training.steps", "20"]
    adding = ["adding", "--data.options.steps", "20", "--data.options.train_items", "64"]
    labels = ["my-labels", "--data.options.path", str(table), "--data.options.values", "[x]"]
    labels += ["--data.options.series", "id", "--data.options.label", "kind", "--training.batch_size", "8"]
    return {
        "text": [*words, "--training.sample", "10", "--training.batch_size", "4", *SIZES, *COMMON],
        "adding": [*adding, "--data.options.test_items", "8", "--training.batch_size", "8", *SIZES, *COMMON],
        "labels": [*labels, *SIZES, "--model.dilation", "[1,2,4]", *COMMON],
    }


def start(arguments: list[str], log: Path) -> int:
    """Run a command of trellisnet in a forked process; return its number."""
    child = os.fork()
    if child == 0:
        with log.open("a", encoding="utf-8") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = 1
        with contextlib.suppress(BaseException):
            code = trellisnet(arguments)
        os._exit(code)
    return child


def finish(arguments: list[str], log: Path) -> float:
    """Run to the end; return the seconds."""
    started = time.monotonic()
    _, status = os.waitpid(start(["train", *arguments], log), 0)
    if status:
        raise RuntimeError(f"`train {' '.join(arguments)}` failed: see {log}")
    return time.monotonic() - started


def phase(run: Path) -> str:
    """What a killed run was doing, as far as its folder tells."""
    if any(run.rglob(".*.tmp")):
        return "writing a file"
    if (run / "last").exists():
        return "finishing"
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines() if (run / "metrics.jsonl").exists() else []
    if not lines:
        return "start"
    return "evaluation or epoch end" if "valid" in lines[-1] else "steps"


def equal(run: Path, whole: Path) -> bool:
    """Whether two runs have the same metrics and models, bit by bit."""
    names = ["metrics.jsonl", *(f"{which}/model.safetensors" for which in ("best", "last"))]
    return all((run / name).read_bytes() == (whole / name).read_bytes() for name in names)


def main() -> None:
    folder, kills = Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 200
    generator = random.Random(int(sys.argv[3]) if sys.argv[3:] else 0)
    folder.mkdir(parents=True)
    log, hits, runs = folder / "log.txt", Counter[str](), 0
    tasks = recipes(folder)
    seconds = {name: finish([*flags, "--to", str(folder / f"{name}-whole")], log) for name, flags in tasks.items()}
    while sum(hits.values()) < kills:
        name = list(tasks)[runs % len(tasks)]
        run, own = folder / "killed", 0
        shutil.rmtree(run, ignore_errors=True)
        again = [*tasks[name], "--to", str(run)]
        while own < PER_RUN:
            child = start(["train", *again], log)
            time.sleep(generator.random() * seconds[name])
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                if status:
                    raise RuntimeError(f"{name} failed: see {log}")
                break
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            own += 1
            hits[phase(run)] += 1
            if (run / "config.yaml").exists():
                again = ["--resume", str(run)]
        if not (run / "report.html").exists():
            finish(again, log)
        runs += 1
        if not equal(run, folder / f"{name}-whole"):
            raise RuntimeError(
                f"{name}: {run} differs from the run that was not killed, after {sum(hits.values())} kills"
            )
        print(f"{sum(hits.values())} kills of {runs} runs, all bit-identical at the end: {dict(hits)}", flush=True)


if __name__ == "__main__":
    main()
