"""The ablations of table 6 at a small scale: word-level Penn Treebank, the same time of one core for every variant.

python benchmarks/ablations.py FOLDER [--minutes 1.5] [--seeds 2]

It is one `trellisnet ablate`, so a call with the same FOLDER continues one that was interrupted. The results go
to `benchmarks/ablations.json`, of which `python docs/figures/make.py` makes a table.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from trellisnet.cli import main as trellisnet
from trellisnet.files import replacing

RESULT = Path(__file__).parent / "ablations.json"
FLAGS = {  # the paper's path and ingredients, 22 layers, because one variant injects the input every 20 layers
    "model.embedding_size": "32",
    "model.hidden_size": "64",
    "model.path": "layers",
    "model.cell": "lstm",
    "model.hidden_taps": "null",
    "model.read_all": "false",
    "model.num_layers": "22",
    "model.history": "discard",
    "model.horizon": "10",
    "model.aux_every": "8",
    "model.aux_weight": "0.05",
    "model.input_dropout": "0.1",
    "model.hidden_dropout": "0.1",
    "model.output_dropout": "0.1",
    "model.weight_dropout": "0.1",
    "training.batch_size": "16",
    "training.steps": "30",
    "training.learning_rate": "0.008",
    "training.epochs": "100",
    "training.evaluation_batch": "128",
    "training.sample": "0",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=1.5, help="of one core per run")
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    time = {"training.minutes": f"{given.minutes:g}", "training.clock": "cpu"}
    flags = [part for key, value in {**FLAGS, **time}.items() for part in (f"--{key}", value)]
    place = ["--to", str(given.folder), "--seeds", str(given.seeds)]
    if code := trellisnet(["ablate", "word-ptb-small", *flags, *place]):
        raise SystemExit(code)
    with replacing(RESULT) as (path,):
        shutil.copyfile(given.folder / "results.json", path)


if __name__ == "__main__":
    main()
