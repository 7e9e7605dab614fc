"""Does learned attention help a trellis? Characters of Penn Treebank, an equal and small CPU time for each net.

    python benchmarks/attention_study.py --seconds 60 --to study.json [--only grown,continued]

The budget counts the CPU time of training in this process, on one thread, so that other work on the machine does not
change it. `grown` and `continued` start from the net that `trellis` has become, and train as long again: with attention
and without. Training is that of the recipe char-ptb-small, but for the transformer's rate, which is lower.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch

from trellisnet.data import load
from trellisnet.models.build import build_language_model
from trellisnet.models.language import LanguageModel

SWEEPS = {"num_layers": 2, "path": "sweeps", "cell": "coupled", "hidden_taps": 1}
ATTENTION = {**SWEEPS, "window": 64, "heads": 4}
NETS: dict[str, tuple[str, dict[str, Any], float]] = {  # body, options, learning rate
    "trellis": ("trellis", {**SWEEPS, "hidden_size": 384}, 8e-3),
    "scratch": ("attention-trellis", {**ATTENTION, "hidden_size": 272}, 8e-3),
    "transformer": ("transformer", {"num_layers": 2, "heads": 4, "window": 128, "hidden_size": 156}, 2e-3),
    "grown": ("attention-trellis", {**ATTENTION, "hidden_size": 384}, 8e-3),
    "continued": ("trellis", {**SWEEPS, "hidden_size": 384}, 8e-3),
}
BATCH, STEPS, SCORED = 32, 64, 50_000


def train(lm: LanguageModel, ids: torch.Tensor, seconds: float, rate: float) -> int:
    """Train for a number of CPU seconds, with a rate that rises for 5 % of them and falls as a cosine."""
    optimiser = torch.optim.AdamW(lm.parameters(), rate, weight_decay=0.0)
    columns = ids[: len(ids) // BATCH * BATCH].view(BATCH, -1)
    state, used, steps = None, 0.0, 0
    while used < seconds:
        start = steps * STEPS % (columns.shape[1] - STEPS - 1)
        window = columns[:, start : start + STEPS + 1]
        share = used / seconds
        for group in optimiser.param_groups:
            group["lr"] = rate * min(share / 0.05, 0.5 + 0.5 * math.cos(math.pi * share)) if steps else rate / 100
        since = time.process_time()
        out = lm(window[:, :-1], window[:, 1:], state)
        optimiser.zero_grad()
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(lm.parameters(), 0.5)
        optimiser.step()
        used, state, steps = used + time.process_time() - since, out.state, steps + 1
    return steps


def main(seconds: float, to: Path, only: list[str]) -> None:
    """Train the nets one after the other, and write what each of them reached."""
    torch.set_num_threads(1)
    data: Any = load("ptb-char")
    train_ids, valid_ids = (torch.from_numpy(data.splits[name].astype("int64")) for name in ("train", "valid"))
    for name in only:
        torch.manual_seed(0)
        body, options, rate = NETS[name]
        lm = build_language_model(body, len(data.vocabulary), 64, tied=False, **options)
        if name in ("grown", "continued"):
            lm.load_weights(to.with_suffix(".trellis"), grown=True)
        steps = train(lm, train_ids, seconds, rate)
        if name == "trellis":
            lm.save_pretrained(to.with_suffix(".trellis"))
        bits = lm.score(valid_ids[:SCORED].view(10, -1), window=100).bits
        result = {"net": name, "parameters": sum(p.numel() for p in lm.parameters()), "steps": steps, "bits": bits}
        result |= {"gamma": lm.net.attention.gamma.item()} if body == "attention-trellis" else {}
        print(json.dumps(result), flush=True)
        with to.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--to", type=Path, default=Path("study.json"))
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(NETS))
    arguments = parser.parse_args()
    main(arguments.seconds, arguments.to, arguments.only)
