"""Learning numbers that belong to a sequence; forecasting is a case of it."""

from __future__ import annotations

from typing import Any

from trellisnet.data.batches import Batch
from trellisnet.models.build import build_regressor
from trellisnet.models.sequence import SequenceRegressor
from trellisnet.training.metrics import MAE, MSE
from trellisnet.training.tasks.base import Sums
from trellisnet.training.tasks.sequences import SequenceTask

PAIRS = 500  # predictions that the report shows at most


class RegressionTask(SequenceTask):
    """One or several numbers per sequence."""

    kind = SequenceRegressor
    metric, others = MSE, (MAE,)
    summed = ("loss", "error", "count")
    model: SequenceRegressor

    def build_model(self) -> SequenceRegressor:
        chosen, data = self.config.model, self.data
        return build_regressor(chosen.body, data.input_size, data.output_size, **chosen.chosen())

    def sizes(self) -> dict[str, tuple[int, int]]:
        return {
            "input_size": (self.model.net.input_size, self.data.input_size),
            "num_values": (self.model.readout.out_features, self.data.output_size),
        }

    def judge(self, batch: Batch, depth: int | None) -> Sums:
        difference = self.model(batch.inputs, lengths=batch.lengths, depth=depth).prediction - batch.targets
        return {
            "loss": difference.square().sum().item(),
            "error": difference.abs().sum().item(),
            "count": difference.numel(),
        }

    def metrics(self, sums: Sums) -> dict[str, float]:
        return {"mse": sums["loss"] / sums["count"], "mae": sums["error"] / sums["count"]}

    def shown(self) -> dict[str, Any]:
        """Predictions beside their targets, of the first number."""
        targets: list[float] = []
        predicted: list[float] = []
        for batch in self.data.batches(self.shown_split, min(PAIRS, self.training.evaluation_batch)):
            values = self.model.predict(batch.to(self.device).inputs, batch.lengths)
            targets += batch.targets[:, 0].tolist()
            predicted += values[:, 0].tolist()
            if len(targets) >= PAIRS:
                break
        return {"predictions": {"target": targets[:PAIRS], "predicted": predicted[:PAIRS]}}
