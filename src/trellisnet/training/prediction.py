"""What a trained run says of new data. The data that it was trained on is not needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from trellisnet.data.files.columns import Columns
from trellisnet.models.pretrained import CONFIG
from trellisnet.training.distribution import choose_device
from trellisnet.training.fit import Fitted
from trellisnet.training.runs import TASK, Run
from trellisnet.training.saving import load_weights
from trellisnet.training.tasks import TASKS


def predict(
    run: Path | str | Fitted,
    inputs: Any,
    *,
    which: str = "best",
    model: nn.Module | None = None,
    per: str | None = None,
) -> Columns:
    """What a run says of new data: columns by name, in the order of the input.

    Labels with their probabilities; values in the units of the training file, at every step if the model gives them
    there; forecasts of what follows each series; answers at the steps of tokens; or the log-probability, perplexity and
    bits per token of texts.

    Args:
        run: the folder of a run, or what `fit` returned.
        inputs: the path of a file that has the form of the one trained on, without what is to be predicted; or
            arrays as `fit` takes them; of a language model also a list of texts.
        which: the model that was best in validation, "best", or that of the last epoch, "last".
        model: of a run with a module, body or cell of your own: an equal model, which gets the weights. Your own module
            must accept None as targets.
        per: of a language model: what of a file is scored, "line" (default) or "document".
    """
    folder = run.folder if isinstance(run, Fitted) else Path(run)
    opened = Run.open(folder)
    facts = opened.read_json(TASK)
    if facts is None:
        raise ValueError(f"{folder} has no {TASK}, which tells how to predict: it was trained by an older version")
    trained, kind = folder / which, TASKS[facts["task"]]
    if not trained.is_dir():
        raise FileNotFoundError(f"{folder} has no model {which!r} yet: train it first")
    torch.set_flush_denormal(True)
    device = choose_device(opened.config.training.device)
    if model is not None:
        load_weights(model, trained)
        model.to(device)
    elif (trained / CONFIG).is_file():
        model = kind.kind.from_pretrained(trained, device=device)
    else:
        raise ValueError(f"{folder} has a {facts['model']} of your own: use trellisnet.predict with model=...")
    return kind.predict(model, facts, inputs, opened.config.training.evaluation_batch, per)
