"""The training loop, from the first step or from a checkpoint."""

from __future__ import annotations

import json
import math
import time
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from trellisnet.data.batches import Batch
from trellisnet.models.body import State, pack_state, unpack_state
from trellisnet.training.checkpoints import generator_states, load_latest, save_checkpoint
from trellisnet.training.clock import Clock
from trellisnet.training.continuing import check_same_run
from trellisnet.training.depths import Depth, described, draw, shown_depths, validated
from trellisnet.training.distribution import Workers, parallel, without_exchange
from trellisnet.training.elastic import restore_own
from trellisnet.training.means import RunningMeans
from trellisnet.training.non_finite import NonFinite
from trellisnet.training.optimisation import Average, LearningRate, make_optimiser, stalled, without_progress
from trellisnet.training.progress import Progress
from trellisnet.training.runs import Run
from trellisnet.training.saving import load_weights, own_tensors, save_model
from trellisnet.training.sharding import Sharded, full, whole
from trellisnet.training.signals import Interrupted, Signals
from trellisnet.training.tasks.base import Task


class Trainer:
    """The state of a run in training, and the steps that change it.

    `save` writes the complete state: a resumed run gives bit-identical results to an uninterrupted one, except with a
    time budget, because no two steps take the same time, and with another number of processes, because sums are rounded
    in another order and each process draws its own dropout masks.
    """

    def __init__(self, run: Run, task: Task, workers: Workers, progress: Progress) -> None:
        self.run, self.task, self.workers, self.progress = run, task, workers, progress
        self.config = run.config.training
        model: nn.Module = task.model.to(workers.device)
        self.wrapped = parallel(model, workers, self.config.shard)
        self.model = self.wrapped.parts.model if isinstance(self.wrapped, Sharded) else model  # the one that is trained
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimiser = make_optimiser(self.config, self.parameters)
        self.batches = task.train_batches(workers)
        self.facts = task.facts()
        self.clock = Clock(self.config, workers)
        self.last_step = self.config.max_steps or math.inf
        total = min(self.batches.total(self.config.epochs), self.last_step)
        self.rate = LearningRate(self.config, int(total), self.clock)
        self.average = Average(self.parameters)
        self.step = 0
        self.carried: list[State] = [None] * self.config.accumulate
        self.validation_scores: list[float] = []  # one per evaluation, lower is better
        self.best: dict[str, float] | None = None  # validation metrics of the best model at its own depth, if known
        self.running = RunningMeans()
        self.entries = 0  # lines of metrics.jsonl so far
        self.saved_at = time.monotonic()
        self.signals = Signals()
        self.judges = False  # whether the next thing to do is an evaluation, not a training step
        self.non_finite = NonFinite(run, progress)

    def fit(self) -> dict[str, dict[str, float]]:
        """Train to the end; return the metrics of the best model, by split."""
        with self.signals.caught():
            while self.judges or self._goes_on():
                if not self.judges:
                    if self.config.depths:
                        self.progress.say(f"epoch {self.batches.epoch + 1}: depth {described(self._depth())}")
                    self._train_epoch()
                    self.judges = True
                depth = self.config.depth_in(self.batches.epoch - (self.batches.position == 0))
                try:
                    self._after_epoch(validated(depth))
                except Interrupted:
                    self.save()
                    raise
                self.judges = False
                if validated(self._depth()) != validated(depth):
                    self.validation_scores = []  # scores at another depth are not comparable
                    self.average = Average(self.parameters)
                self.save()
                if self.workers.agree(self.signals.stopping):
                    raise Interrupted
            with self.signals.at_once(self.workers.count == 1):
                return self._finish()

    def _goes_on(self) -> bool:
        left = self.batches.epoch < self.config.epochs and self.step < self.last_step
        return left and not self.clock.is_up and not self._stalled_for_good()

    def _train_epoch(self) -> None:
        """Train on the remaining batches of the current epoch, or until the clock demands an evaluation."""
        epoch = self.batches.epoch
        self.model.train()
        self.clock.start()
        for batch in self.batches:
            started = time.monotonic()
            loss = self._step(batch.to(self.workers.device))
            self.step += 1
            if loss is not None:
                if self.average.count:
                    self.average.update()
                self.progress.advance(self.step, loss, self._units(batch), time.monotonic() - started, self.clock.left)
            if self.step % self.config.log_every == 0 and self.running:
                self._log_training(epoch)
            if self.clock.stop() or self.step == self.last_step:
                break  # without a checkpoint: `fit` saves one after the evaluation
            self._save_if_due()
            self.clock.start()

    def _step(self, batch: Batch) -> float | None:
        """Train on one batch; return its loss, or None if the step is skipped because of a non-finite number."""
        rate = self.rate.at(self.step, self.batches.epoch) * self.task.rate_factor(batch)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.zero_grad(set_to_none=True)
        totals = {"": torch.zeros((), device=self.workers.device)}  # the loss, and its parts by name
        pieces = batch.split(self.config.accumulate)
        depth = draw(self._depth(), self.config.seed, self.step)
        for i, piece in enumerate(pieces):
            last = i + 1 == len(pieces)
            share = len(piece.inputs) / len(batch.inputs)
            with nullcontext() if last else without_exchange(self.wrapped):
                with self._autocast():
                    loss, parts, self.carried[i] = self.task.loss(self.wrapped, piece, self.carried[i], depth)
                loss = loss * share
                loss.backward()
            totals[""] += loss.detach()
            for name, part in parts.items():
                totals[name] = totals.get(name, 0.0) + part.detach() * share
        means = self.workers.mean(totals)
        value = means.pop("")
        # loss and norm are the same in all processes: either all of them skip the step, or none
        norm = full(nn.utils.clip_grad_norm_(self.parameters, self.config.clip or math.inf)).item()
        if not math.isfinite(value + norm):
            what = "gradient" if math.isfinite(value) else "loss"
            self.non_finite.skip_or_stop(what, self.step, self.batches.epoch, rate)
            self.carried = [None] * self.config.accumulate  # carried states may be non-finite too
            return None
        self.non_finite.consecutive = 0
        self.optimiser.step()
        self.running.add(value, means, self._units(batch))
        return value

    def _units(self, batch: Batch) -> int:
        """The units of a batch (tokens or sequences), over all processes."""
        return self.task.size(batch) * self.workers.count

    def _after_epoch(self, depth: int | None) -> None:
        """Evaluate at a depth, decay the learning rate, save the model if it is the best so far."""
        epoch = self.batches.epoch
        within = self.batches.position > 0  # the clock or `max_steps` stopped the epoch
        if epoch % self.config.evaluate_every and epoch < self.config.epochs and not within:
            return
        with self.average.in_use(), whole(self.wrapped):
            with self.signals.at_once(self.workers.count == 1):
                metrics = self.evaluate(self.task.valid_split, depth)
            judged = self.task.judged_by(metrics)
            scores = self.validation_scores
            scores.append(math.inf if math.isnan(judged) else judged)
            self._add_metrics({"epoch": self._epochs(), "step": self.step, "valid": metrics})
            if scores[-1] <= min(scores):
                self.best = None if depth else metrics
                if self.workers.first:
                    save_model(self.task.model, self.run.folder / "best", self.facts)
        self.progress.epoch(self._epochs(), metrics, self.rate.at(self.step, epoch))
        if self.rate.after_evaluation(scores):
            self.progress.say(f"learning rate {self.rate.at(self.step, epoch):.4g} from epoch {epoch + 1} on")
        if self.config.average and not self.average.count and stalled(scores, self.config.patience):
            self.progress.say(f"validation stalls: averaging weights from epoch {epoch + 1} on")
            self.average.update()

    def evaluate(self, split: str, depth: int | None = None) -> dict[str, float]:
        """Metrics of a split, over all processes."""
        return self.task.measured(split, self.workers, depths=[depth])[0]

    def _finish(self) -> dict[str, dict[str, float]]:
        """Save the last model; evaluate the best one on the splits that the configuration asks for, at all depths."""
        with self.average.in_use(), whole(self.wrapped):
            if self.workers.first:
                save_model(self.task.model, self.run.folder / "last", self.facts)
        self.workers.wait()
        if isinstance(self.wrapped, Sharded):
            self.wrapped.fill()
        load_weights(self.task.model, self.run.folder / "best")
        known = {} if self.best is None else {self.task.valid_split: self.best}
        metrics = {split: known.get(split) or self.evaluate(split) for split in self.task.final_splits}
        entry = {"epoch": self._epochs(), "step": self.step, "best": metrics}
        if depths := shown_depths(depth for _, depth in self.config.depths):
            entry["depths"] = self.task.evaluate_depths(self.task.valid_split, depths, workers=self.workers)
        self._add_metrics(entry)
        return metrics

    def save(self) -> None:
        """Write a checkpoint."""
        own = {
            "carried": [pack_state(state) for state in self.carried],
            "generators": generator_states(self.workers.device),
        }
        everyone = self.workers.gather(own)
        first = self.workers.first
        if first or self.config.shard:
            state = {**self._shared_state(), "workers": everyone}
            save_checkpoint(self.run.checkpoints, self.step, state, first)
        self.workers.wait()
        self.saved_at = time.monotonic()

    def _shared_state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "judges": self.judges,
            "config": json.dumps(self.run.config.to_dict(), sort_keys=True),
            "data": self.task.fingerprint,
            "model": own_tensors(self.model),
            "optimiser": self.optimiser.state_dict(),
            "decays": self.rate.decays,
            "average": self.average.state_dict(),
            "batches": self.batches.state_dict(),
            "history": self.validation_scores,
            "best": self.best,
            "running": self.running.state_dict(),
            "entries": self.entries,
            "seconds": self.clock.used,
        }

    def restore(self) -> bool:
        """Load the last intact checkpoint, if there is one; a ValueError if config or data differ."""
        mesh = getattr(self.parameters[0], "device_mesh", None)  # of a sharded model
        state = load_latest(self.run.checkpoints, self.progress.say, mesh)
        if state is None:
            if self.workers.first:
                self.run.keep_metrics(0)
            return False
        check_same_run(state, self.run, self.task)
        with torch.no_grad():
            for name, tensor in own_tensors(self.model).items():
                tensor.copy_(state["model"][name])
        self.optimiser.load_state_dict(state["optimiser"])
        self.average.load_state_dict(state["average"])
        self.batches.load_state_dict(state["batches"])
        self.step, self.rate.decays, self.validation_scores = state["step"], state["decays"], state["history"]
        self.running.load_state_dict(state["running"])
        self.judges, self.best = state.get("judges", False), state.get("best")
        self.entries, self.clock.used = state["entries"], state.get("seconds", 0.0)
        device = self.workers.device
        own = restore_own(state["workers"], self.workers, (self.config.seed, self.step), self.progress.say)
        self.carried = [unpack_state(each, device) for each in own]
        self.average.means = [mean.to(device) for mean in self.average.means]
        if self.workers.first:
            self.run.keep_metrics(self.entries)
        return True

    def _save_if_due(self) -> None:
        due = time.monotonic() - self.saved_at >= 60 * self.config.save_minutes
        if self.workers.agree(due or self.signals.stopping):
            self.save()
            if self.workers.agree(self.signals.stopping):
                raise Interrupted

    def _epochs(self) -> float:
        """The number of epochs so far, a whole number unless the clock stopped the last one."""
        epoch, position = self.batches.epoch, self.batches.position
        return round(epoch + position / len(self.batches), 3) if position else epoch

    def _autocast(self) -> Any:
        if self.config.precision == "float32":
            return nullcontext()
        return torch.autocast(self.workers.device.type, dtype=torch.bfloat16)

    def _depth(self) -> Depth | None:
        """The depth of the current epoch, or its range; None is the model's own depth."""
        return self.config.depth_in(self.batches.epoch)

    def _stalled_for_good(self) -> bool:
        patience, last = self.config.stop_early, self.config.depth_in(self.config.epochs - 1)
        if patience is None or self._depth() != last or not without_progress(self.validation_scores, patience):
            return False
        self.progress.say(f"stopped early: no improvement in {patience} evaluations")
        return True

    def _log_training(self, epoch: int) -> None:
        rate = self.rate.at(self.step - 1, epoch)
        self._add_metrics({"epoch": epoch, "step": self.step, **self.running.take(), "learning_rate": rate})

    def _add_metrics(self, entry: dict[str, Any]) -> None:
        self.entries += 1
        if self.clock.budget is not None:
            entry = {**entry, "seconds": round(self.clock.used, 3)}
        if self.workers.first:
            self.run.add_metrics(entry)
