"""What the training loop costs beside the model's own step."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measure import interleaved
from trellisnet.data import Batch, Batches, TextData
from trellisnet.training.config import Config, TrainingConfig, model_config
from trellisnet.training.distribution import Workers
from trellisnet.training.loop import Trainer
from trellisnet.training.progress import Progress
from trellisnet.training.runs import Run
from trellisnet.training.tasks.language import LanguageTask
from trellisnet.vocabulary import Vocabulary

STEPS = 5  # of a turn


class Some:
    """A few batches at a time of an epoch."""

    epoch = 0

    def __init__(self, batches: Batches) -> None:
        self.rest = iter(batches)

    def __iter__(self) -> Iterator[Batch]:
        return itertools.islice(self.rest, STEPS)


def loop() -> list[dict[str, Any]]:
    """Steps of the demo's size: in the loop, with its batches, metrics and progress, and bare, on one batch."""
    torch.set_flush_denormal(True)
    ids = np.random.default_rng(0).integers(0, 90, 4_000_000).astype(np.uint8)
    vocabulary = Vocabulary([chr(33 + i) for i in range(90)], "characters")
    config = Config(
        model=model_config("trellis", "text")(embedding_size=64, hidden_size=256, num_layers=6),
        training=TrainingConfig(batch_size=32, steps=64, clip=0.5, log_every=10),
    )
    task = LanguageTask(config, TextData("random", vocabulary, {"train": ids, "valid": ids[:1000]}))
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(config, "loop", Path(folder) / "run")
        trainer = Trainer(run, task, Workers(), Progress(10_000, "tokens", run.log))
        batches = Some(trainer.batches)
        fixed = next(batches.rest)
        trainer.batches = batches  # type: ignore[assignment]
        optimiser = torch.optim.Adam(task.model.parameters(), 1e-3)

        def in_the_loop() -> None:
            trainer._train_epoch()

        def bare() -> None:
            task.model.train()
            for _ in range(STEPS):
                optimiser.zero_grad(set_to_none=True)
                out = task.model(fixed.inputs, fixed.targets)
                assert out.loss is not None
                out.loss.backward()
                torch.nn.utils.clip_grad_norm_(trainer.parameters, 0.5)
                optimiser.step()

        seconds = interleaved({"bare": bare, "in the loop": in_the_loop}, rounds=10)
        run.release()
    return [
        {"step": name, "ms": round(1000 * each / STEPS, 1), "times bare": round(each / seconds["bare"], 3)}
        for name, each in seconds.items()
    ]
