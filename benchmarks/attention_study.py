"""Does learned attention help a trellis? Two tasks, nets of equal size, an equal and small CPU time for each.

    python benchmarks/attention_study.py --task characters --seconds 60
    python benchmarks/attention_study.py --task pixels --seconds 60 [--only trellis,transformer] [--to study.json]

`characters` is character-level Penn Treebank, `pixels` is permuted MNIST. The budget counts the CPU time of training in
this process, on one thread, so that other work on the machine does not change the share of a net. `trellis`, `scratch`
and `transformer` have the same number of parameters, within 3 %. `grown` and `continued` start from the net that
`trellis` has become, and train as long again: with attention and without; `grown` is larger by its attention. Results
are added to the JSON file `--to`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trellisnet.data import load
from trellisnet.models.build import build_classifier, build_language_model
from trellisnet.models.sizing import width_for

SWEEPS = {"num_layers": 2, "path": "sweeps", "cell": "coupled", "hidden_taps": 1}
NETS: dict[str, tuple[str, dict[str, Any], float]] = {  # body, options, share of the task's learning rate
    "trellis": ("trellis", SWEEPS, 1.0),
    "scratch": ("attention-trellis", {**SWEEPS, "window": 64, "heads": 4}, 1.0),
    "transformer": ("transformer", {"num_layers": 2, "heads": 4}, 0.25),
    "grown": ("attention-trellis", {**SWEEPS, "window": 64, "heads": 4}, 1.0),
    "continued": ("trellis", SWEEPS, 1.0),
}
GROWN = ("grown", "continued")  # from the trained net `trellis`


@dataclass
class Task:
    """What a net learns.

    Args:
        parameters: size of a whole model.
        rate: the highest learning rate.
        clip: norm of the gradient.
        options: further options by body.
        build: makes a model from body and options.
        step: the loss of a training step: from model, number of the step and the state before it, with the new state.
        score: name and value of the validation metric.
    """

    parameters: float
    rate: float
    clip: float
    options: dict[str, dict[str, Any]]
    build: Callable[..., Any]
    step: Callable[[Any, int, Any], tuple[Tensor, Any]]
    score: Callable[[Any], tuple[str, float]]


def characters(batch: int = 32, steps: int = 64, scored: int = 50_000) -> Task:
    """Characters of Penn Treebank, in the windows of a text that goes on; scored on the first validation characters."""
    data: Any = load("ptb-char")
    train, valid = (torch.from_numpy(data.splits[name].astype("int64")) for name in ("train", "valid"))
    columns = train[: len(train) // batch * batch].view(batch, -1)

    def step(model: Any, number: int, state: Any) -> tuple[Tensor, Any]:
        start = number * steps % (columns.shape[1] - steps - 1)
        window = columns[:, start : start + steps + 1]
        out = model(window[:, :-1], window[:, 1:], state)
        return out.loss, out.state

    def build(body: str, **options: Any) -> nn.Module:
        return build_language_model(body, len(data.vocabulary), 64, tied=False, **options)

    def score(model: Any) -> tuple[str, float]:
        return "bits", model.score(valid[:scored].view(10, -1), window=100).bits

    return Task(0.57e6, 8e-3, 0.5, {"transformer": {"window": 128}}, build, step, score)


def pixels(batch: int = 32, scored: int = 1000) -> Task:
    """Permuted MNIST, a class after 784 pixels; scored on the first images of the validation split."""
    data: Any = load("perm-mnist", valid_items=5000)
    order = np.random.default_rng(0).permutation(len(data.splits["train"]))

    def taken(split: str, places: Any) -> tuple[Tensor, Tensor]:
        x, labels = data.splits[split].take(places)
        return torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(labels)

    def step(model: Any, number: int, state: Any) -> tuple[Tensor, Any]:
        first = number * batch % (len(order) - batch)
        return model(*taken("train", order[first : first + batch])).loss, None

    def build(body: str, **options: Any) -> nn.Module:
        return build_classifier(body, 1, 10, **options)

    def score(model: Any) -> tuple[str, float]:
        right = 0
        with torch.no_grad():
            for places in np.arange(scored).reshape(-1, 100):
                x, labels = taken("valid", places)
                right += int((model.eval()(x).prediction.argmax(1) == labels).sum())
        return "accuracy", right / scored

    return Task(0.0484e6, 4e-3, 1.0, {"transformer": {"window": 784}}, build, step, score)


TASKS: dict[str, Callable[[], Task]] = {"characters": characters, "pixels": pixels}


def train(task: Task, model: nn.Module, seconds: float, share: float) -> int:
    """Train for a number of CPU seconds, with a rate that rises for 5 % of them and falls as a cosine."""
    optimiser = torch.optim.AdamW(model.parameters(), task.rate, weight_decay=0.0)
    state, used, steps = None, 0.0, 0
    while used < seconds:
        done = used / seconds
        for group in optimiser.param_groups:
            rising = min(done / 0.05, 0.5 + 0.5 * math.cos(math.pi * done)) if steps else 0.01
            group["lr"] = task.rate * share * rising
        since = time.process_time()
        loss, state = task.step(model.train(), steps, state)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), task.clip)
        optimiser.step()
        used, steps = used + time.process_time() - since, steps + 1
    return steps


def built(task: Task, body: str, options: dict[str, Any], width: int) -> Any:
    """The model of a width."""
    return task.build(body, hidden_size=width, **options)


def study(name: str, task: Task, seconds: float, only: list[str]) -> list[dict[str, Any]]:
    """Train the nets one after the other; return what each of them reached."""
    results, trained = [], None
    for net in only:
        torch.manual_seed(0)
        body, options, share = NETS[net]
        options = {**options, **task.options.get(body, {})}
        sized = ("trellis", SWEEPS) if net in GROWN else (body, options)
        width = width_for(partial(built, task, *sized), task.parameters)
        if net in GROWN or net == "trellis":
            width -= width % 4  # the heads of `grown` share it
        model = built(task, body, options, width)
        if net in GROWN:
            if trained is None:
                raise ValueError(f"{net} continues from the net 'trellis': name it first in --only, got {only}")
            model.load_state_dict({**model.state_dict(), **trained})
        steps = train(task, model, seconds, share)
        if net == "trellis":
            trained = {key: value.clone() for key, value in model.state_dict().items()}
        metric, value = task.score(model)
        size = sum(parameter.numel() for parameter in model.parameters())
        result = {"task": name, "net": net, "seconds": seconds, "parameters": size, "steps": steps, metric: value}
        if body == "attention-trellis":
            result["gamma"] = model.net.attention.gamma.item()
        print(json.dumps(result), flush=True)
        results.append(result)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=list(TASKS), default="characters")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--to", type=Path, default=Path("study.json"))
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(NETS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    before = json.loads(arguments.to.read_text(encoding="utf-8")) if arguments.to.exists() else []
    found = study(arguments.task, TASKS[arguments.task](), arguments.seconds, arguments.only)
    arguments.to.write_text(json.dumps([*before, *found], indent=1) + "\n", encoding="utf-8")
