"""Make a run a pretrained model of the package: its folder without checkpoints, logs and what only reports show.

python benchmarks/ship.py RUN NAME
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from trellisnet.checksums import CHECKSUMS
from trellisnet.models.shipped import FOLDER, seal
from trellisnet.training.runs import CONFIG, ENVIRONMENT, METRICS, RESULT, TASK, read_json, write_json

KEPT = (CONFIG, ENVIRONMENT, METRICS, TASK)
OF_RESULT = ("metrics", "protocol", "parameters", "naive")
LARGEST = 2_000_000  # bytes of the weights


def ship(run: Path, to: Path) -> None:
    """Copy a finished run into a new folder, with the checksums of all its files.

    Raises:
        ValueError: the run is not finished, or its weights are too large for a wheel.
    """
    result = read_json(run / RESULT)
    if result is None or "metrics" not in result:
        raise ValueError(f"{run} is not a finished run")
    size = sum(path.stat().st_size for path in (run / "best").iterdir())
    if size > LARGEST:
        raise ValueError(f"{run / 'best'} has {size:,} bytes, and a pretrained model at most {LARGEST:,}")
    shutil.copytree(run / "best", to / "best", ignore=shutil.ignore_patterns(CHECKSUMS))  # one list for all files
    for name in KEPT:
        shutil.copyfile(run / name, to / name)
    write_json(to / RESULT, {name: result[name] for name in OF_RESULT if name in result})
    seal(to)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    given = parser.parse_args()
    ship(given.run, FOLDER / given.name)
