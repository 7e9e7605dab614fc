"""What training does if a loss or a gradient is not a finite number."""

from __future__ import annotations

from trellisnet.training.checkpoints import saved_steps
from trellisnet.training.progress import Progress
from trellisnet.training.runs import Run

MOST_SKIPPED = 10  # consecutive steps; after that, training does not recover


class NotANumberError(RuntimeError):
    """The loss or its gradient is infinite or not a number."""


class NonFinite:
    """Counts the steps that are skipped because they are not finite, and stops the run if they are too many.

    Attributes:
        consecutive: number of skipped steps since the last good one. The loop sets it to 0 after a good step.
    """

    def __init__(self, run: Run, progress: Progress) -> None:
        self.run, self.progress = run, progress
        self.consecutive = 0

    def skip_or_stop(self, what: str, step: int, epoch: int, rate: float) -> None:
        """Count and report a step that is not finite, which the loop then skips.

        Args:
            what: what is not finite, loss or gradient.
            step: number of the step, counted from 0.
            epoch: number of the epoch, counted from 0.
            rate: the learning rate.

        Raises:
            NotANumberError: the run shall stop; the message names the last checkpoint.
        """
        where = f"the {what} is not a finite number at step {step + 1} of epoch {epoch + 1}, learning rate {rate:.4g}"
        self.consecutive += 1
        if self.run.config.training.on_nan == "stop" or self.consecutive >= MOST_SKIPPED:
            steps = saved_steps(self.run.checkpoints)
            last = f"the last good checkpoint is {self.run.checkpoints}/step-{steps[-1]}" if steps else "none was saved"
            raise NotANumberError(f"{where}; {last} (a lower learning_rate, clip or on_nan=skip may help a new run)")
        self.progress.say(f"{where}: step skipped")
