r"""One set of weights at every depth and on every path: quality, cost of a streamed step, convergence.

    python benchmarks/depth_study.py RUN [--tokens 20000]    writes benchmarks/depths.json

RUN is a language model on a trellis that was trained at random depths:

    trellisnet train char-ptb-small --training.depths '[[1, [1, 4]]]' --model.cell lstm --model.hidden_taps 2 \
        --model.hidden_size 256 --training.minutes 8 --training.clock cpu --training.epochs 1000 \
        --training.evaluate_every 1000 --training.sample 0 --to RUN

Quality is that of the first tokens of the validation split, in ten columns; time that of the net alone, one sequence,
one thread, median of the process time of a step, in rounds in which all take turns. The change of a layer is the mean
over channels and steps of how much its output differs from that of the layer below. Iterations are those of a stream of
the last of these tokens, every step solved to a tolerance.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from trellisnet import TrellisLM
from trellisnet.files import replacing
from trellisnet.training.runs import Run, environment
from trellisnet.training.tasks import load_data

RESULTS = Path(__file__).parent / "depths.json"
DEPTHS = {"sweeps": (1, 2, 3, 4, 8, 16), "layers": (2, 4, 8, 16, 32, 58, 96), "steps": (1, 2, 3, 4, 8)}
COLUMNS, WINDOW = 10, 100
ROUNDS, STREAMED = 5, 60  # steps per round
SHOWN = 24  # layers whose change is recorded
TOLERANCES, CHARACTERS = (0.1, 0.01, 0.001), 60  # of the streams whose iterations are counted


@torch.no_grad()
def quality(lm: TrellisLM, ids: torch.Tensor, path: str, depth: int) -> float:
    """Bits per token with this path and depth."""
    lm.net.path, lm.net.num_layers = path, depth
    return lm.score(ids.view(COLUMNS, -1), window=WINDOW).bits


@torch.no_grad()
def streamed(lm: TrellisLM, cases: list[tuple[str, int]]) -> list[float]:
    """Milliseconds of a step of a stream, for each path and depth."""
    times: list[list[float]] = [[] for _ in cases]
    for _ in range(ROUNDS):
        for (path, depth), found in zip(cases, times, strict=True):
            x, state = torch.randn(STREAMED, 1, 1, lm.net.input_size), None
            for each in x:
                since = time.process_time()
                _, state = lm.net(each, state, path=path, depth=depth)
                found.append(time.process_time() - since)
    return [1000 * statistics.median(found) for found in times]


@torch.no_grad()
def changes(lm: TrellisLM, ids: torch.Tensor, path: str) -> list[float]:
    """How much each layer's output differs from that of the layer below, on average."""
    lm.net.aux_every = 1
    inputs = lm.embedding(ids.view(COLUMNS, -1)[:, :WINDOW].T)  # (T, B, C)
    levels = lm.net(inputs, path=path, depth=SHOWN, aux=True)[2]
    lm.net.aux_every = None
    below = torch.cat([torch.zeros_like(levels[:1]), levels[:-1]])
    return [(level - under).abs().mean().item() for level, under in zip(levels, below, strict=True)]


@torch.no_grad()
def iterations(lm: TrellisLM, ids: torch.Tensor) -> list[dict[str, Any]]:
    """The layers that each step of a stream needs to converge."""
    lm.net.phantom_layers = 1  # without gradients, more would only be added to the count
    x, rows = lm.embedding(ids[:, None]), []  # (T, 1, C)
    for tolerance in TOLERANCES:
        _, state = lm.net(x[:-CHARACTERS], depth="converged", tolerance=tolerance, path="steps")
        _, state = lm.net(x[-CHARACTERS:], state, depth="converged", tolerance=tolerance, path="steps")
        rows.append({"tolerance": tolerance, "iterations": list(state.iterations)})
    return rows


def measure(run: Run, tokens: int) -> dict[str, Any]:
    """All figures of a run's best model."""
    lm = TrellisLM.from_pretrained(run.folder / "best")
    data: Any = load_data(run.config)
    ids = torch.from_numpy(data.splits["valid"][:tokens].astype("int64"))
    cases = [(path, depth) for path, depths in DEPTHS.items() for depth in depths]
    rows = []
    for (path, depth), milliseconds in zip(cases, streamed(lm, cases), strict=True):
        row = {"path": path, "depth": depth, "streamed_ms": milliseconds}
        rows.append({**row, "bits": quality(lm, ids, path, depth)})
        print(json.dumps(rows[-1]), flush=True)
    text = "".join(data.vocabulary.decode(ids[-CHARACTERS:].tolist()))
    return {
        "quality": rows,
        "changes": {path: changes(lm, ids, path) for path in DEPTHS},
        "stream": {"text": text, "iterations": iterations(lm, ids[-WINDOW - CHARACTERS :])},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--tokens", type=int, default=20_000, help="of the validation split")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    facts = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "environment": environment(), "tokens": given.tokens}
    content = {**facts, **measure(Run.open(given.run), given.tokens)}
    with replacing(RESULTS) as (path,):
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
