"""Classifiers of sequences on the datasets inside the wheel of aeon, which must be installed; nothing is downloaded.

    python benchmarks/archives.py [DATASET ...] [--seed 0] [--methods trellis dtw]

For each dataset: the accuracy of `TrellisSequenceClassifier` with its defaults on sequences of raw length; that of
aeon's 1-nearest neighbour with dynamic time warping; and the published results that the wheel contains, for the
same training and test split. One thread, seconds of CPU time.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import aeon
import numpy as np
import torch
from aeon.classification.distance_based import KNeighborsTimeSeriesClassifier
from aeon.datasets import load_from_ts_file

from trellisnet.sklearn import TrellisSequenceClassifier

DATASETS = ("JapaneseVowels", "GunPoint", "ArrowHead", "ItalyPowerDemand", "PickupGestureWiimoteZ", "PLAID")


def home() -> Path:
    return Path(aeon.__file__).parent


def read(name: str, part: str) -> tuple[list[Any], Any]:
    """The sequences (T, C) of a part and their classes."""
    x, y = load_from_ts_file(str(home() / "datasets" / "data" / name / f"{name}_{part}.ts"))
    return [np.ascontiguousarray(np.asarray(row).T) for row in x], np.asarray(y)


def published(name: str) -> dict[str, float]:
    """Accuracies by classifier, for the default split; `_eq` marks results on sequences made equal in length."""
    found = {}
    for path in sorted((home() / "testing" / "example_results_files" / "classification" / "accuracy").glob("*.csv")):
        with path.open() as file:
            for row in csv.reader(file):
                if row and row[0] in (name, f"{name}_eq"):
                    found[path.stem.removesuffix("_accuracy") + row[0].removeprefix(name)] = round(float(row[1]), 4)
    return found


def trellis(x: list[Any], y: Any, new: list[Any], truth: Any, seed: int) -> str:
    start = time.process_time()
    estimator = TrellisSequenceClassifier(random_state=seed, verbose=1).fit(x, y)
    accuracy = estimator.score(new, truth)
    return f"trellis {accuracy:.4f} ({estimator.readout_}, {time.process_time() - start:.0f} s)"


def dtw(x: list[Any], y: Any, new: list[Any], truth: Any, seed: int) -> str:
    start = time.process_time()
    nearest = KNeighborsTimeSeriesClassifier(n_neighbors=1, distance="dtw")
    nearest.fit([row.T for row in x], y)
    accuracy = np.mean(nearest.predict([row.T for row in new]) == truth)
    return f"1-NN DTW {accuracy:.4f} ({time.process_time() - start:.0f} s)"


METHODS = {"trellis": trellis, "dtw": dtw}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=DATASETS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    for name in arguments.datasets:
        if not (home() / "datasets" / "data" / name).is_dir():
            print(f"{name}: not in the wheel of aeon; published {published(name)}", flush=True)
            continue
        (x, y), (new, truth) = read(name, "TRAIN"), read(name, "TEST")
        results = [METHODS[method](x, y, new, truth, arguments.seed) for method in arguments.methods]
        print(f"{name}: {', '.join(results)}; published {published(name)}", flush=True)


if __name__ == "__main__":
    main()
