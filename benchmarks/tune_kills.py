"""SIGKILL at random moments of `trellisnet tune`; no finished trial is lost, and the study ends as if nothing happened.

python benchmarks/tune_kills.py FOLDER [KILLS [SEED]]      20 kills

A study is killed, its finished trials are compared with those before, and the same command goes on. In the end its
trials must be those of a study that was not killed: the same options, the same values. Then the next study starts.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from kills import start
from trellisnet.training import tuning  # noqa: F401  # imported before the forks
from trellisnet.training.fit import train_in  # noqa: F401

TRIALS = 8
RECIPE = """
data: {name: adding, options: {steps: 20, train_items: 64, test_items: 8}}
model: {hidden_size: 12, num_layers: 3}
training: {epochs: 3, batch_size: 8, evaluation_batch: 8, log_every: 2, save_minutes: 0.0005}
tune:
  training.learning_rate: {low: 1e-4, high: 1e-1, log: true}
  model.num_layers: {low: 1, high: 3}
"""
FINISHED = """
select number, state, value, group_concat(param_name || '=' || param_value) from trials
left join trial_values using (trial_id) left join trial_params using (trial_id)
where state in ('COMPLETE', 'PRUNED', 'FAIL') group by number
"""


def finished(study: Path) -> set[tuple[object, ...]]:
    """The finished trials in the study's database: number, state, value, options."""
    file = study / "study.db"
    if not file.exists():
        return set()
    with closing(sqlite3.connect(file)) as database:
        if not database.execute("select 1 from sqlite_master where name = 'trial_params'").fetchone():
            return set()
        return set(database.execute(FINISHED))


def main() -> None:
    folder, kills = Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 20
    generator = random.Random(int(sys.argv[3]) if sys.argv[3:] else 0)
    folder.mkdir(parents=True)
    recipe, log, done, studies = folder / "small.yaml", folder / "log.txt", 0, 0
    recipe.write_text(RECIPE, encoding="utf-8")

    def command(study: Path) -> list[str]:
        return ["tune", str(recipe), "--trials", str(TRIALS), "--pruner", "none", "--folder", str(study)]

    started = time.monotonic()
    if os.waitpid(start(command(folder / "whole"), log), 0)[1]:
        raise RuntimeError(f"the study failed: see {log}")
    seconds, whole = time.monotonic() - started, finished(folder / "whole")
    while done < kills:
        studies += 1
        study, known = folder / f"killed-{studies}", set[tuple[object, ...]]()
        while len(known) < TRIALS or not (study / "results.json").exists():
            child = start(command(study), log)
            time.sleep(generator.random() * seconds / 2)
            ended, status = os.waitpid(child, os.WNOHANG)
            if not ended:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                done += 1
            elif status:
                raise RuntimeError(f"{study} failed: see {log}")
            lost = known - (known := finished(study))
            if lost:
                raise RuntimeError(f"{study} lost {sorted(lost)}")
        if known != whole:
            raise RuntimeError(f"{study} ended with other trials than the study that was not killed")
        print(f"{done} kills of {studies} studies of {TRIALS} trials: none lost, all as without a kill", flush=True)


if __name__ == "__main__":
    main()
