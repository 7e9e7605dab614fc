"""Predictions of a trained run for new data. The training data is not needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from trellisnet.data.files.columns import Columns
from trellisnet.data.fingerprints import changes, fact_fingerprints
from trellisnet.models.pretrained import CONFIG
from trellisnet.models.shipped import find_run
from trellisnet.process import prepare_process
from trellisnet.training.config import TrainingConfig
from trellisnet.training.distribution import choose_device
from trellisnet.training.fit import Fitted
from trellisnet.training.runs import TASK, Run, read_json
from trellisnet.training.saving import load_weights
from trellisnet.training.tasks import TASKS

PARTS = ("vocabulary", "train", "valid", "test")  # of a fingerprint that are not facts


def predict(
    run: Path | str | Fitted,
    inputs: Any,
    *,
    which: str = "best",
    model: nn.Module | None = None,
    per: str | None = None,
) -> Columns:
    """Predict for new data; return columns by name, in the order of the input.

    The columns depend on the task: labels with probabilities; values in the units of the training file, per sequence
    or per step; forecasts for each series; answers at the steps of token sequences; or log-probability, perplexity and
    bits per token of texts.

    Args:
        run: the folder of a run; the result of `fit`; the folder of a model of a run, `best` or `last`, or its copy; or
            the name of a pretrained model.
        inputs: path of a file in the form of the training file, labels and targets not needed; or arrays as for `fit`;
            for a language model also a list of texts.
        which: of a run: "best", the best model by validation, or "last", the model after the last epoch.
        model: needed for a run with your own module, body or cell: a model of the same architecture, into which the
            weights are loaded. Your own module must accept None as targets.
        per: language models only: score each "line" of a file (default), or the file as one "document".
    """
    folder = run.folder if isinstance(run, Fitted) else find_run(run)
    if not Run.is_in(folder) and (folder / TASK).is_file():
        trained, facts, training = folder, read_json(folder / TASK), TrainingConfig()
        if which != "best":
            raise ValueError(f"which belongs to a run, and {folder} is a single model: got {which!r}")
    else:
        opened = Run.open(folder)
        trained, training = opened.model_folder(which), opened.config.training
        facts = read_json(trained / TASK) or opened.read_json(TASK)
    if facts is None:
        raise ValueError(f"{folder} has no {TASK}, which prediction needs: it was trained by an older version")
    _check_facts(facts, trained / TASK)
    kind = TASKS[facts["task"]]
    prepare_process()
    device = choose_device(training.device)
    if model is not None:
        load_weights(model, trained)
        model.to(device)
    elif (trained / CONFIG).is_file():
        model = kind.kind.from_pretrained(trained, device=device)
    else:
        raise ValueError(f"{folder} has a {facts['model']} of your own: use trellisnet.predict with model=...")
    return kind.predict(model, facts, inputs, training.evaluation_batch, per)


def _check_facts(facts: dict[str, Any], path: Path) -> None:
    """Raise a ValueError if a scale, the label names or another fact is not that of the training."""
    before = facts.get("fingerprint")
    if isinstance(before, dict):
        found = fact_fingerprints(facts.get("data") or {})
        changed = [name for name in changes(before, found) if name not in PARTS]
        if changed:
            raise ValueError(f"{path} is damaged: {changed[0]} of the data is not that of the training")
