"""The field at a small scale: contests of many bodies, equal in time and parameters.

python benchmarks/field.py FOLDER                    all of them, about ten hours of two cores
python benchmarks/field.py FOLDER jsb char-ptb       some of them
python benchmarks/field.py FOLDER --share 0.2        with a fifth of the time
python benchmarks/field.py FOLDER --seeds 2          with two runs per contestant
python benchmarks/field.py FOLDER --vowels DATA      JapaneseVowels too, from the files of the UEA archive

Each contest is a `trellisnet versus` in a folder of its own, so a call with the same FOLDER continues one that was
interrupted. The results are written to `benchmarks/contests/NAME.json`; `python docs/figures/make.py` makes tables of
them. Nothing else should run on the machine; where something must, `--clock cpu` counts the time of the cores instead.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trellisnet.cli import main as trellisnet
from trellisnet.files import replacing

RESULTS = Path(__file__).parent / "contests"
SWEEPS = "trellis:path=sweeps;num_layers=2;dilation=1"
GATED_SWEEPS = f"{SWEEPS};cell=lstm;inject_every=1"  # where the recipe's cell has no memory
WAYS = [  # through the trellis, for text
    "trellis:path=sweeps;num_layers=2;cell=coupled;hidden_taps=1",  # lean: coupled gates, one hidden tap
    "trellis:path=sweeps;num_layers=2;cell=lstm;hidden_taps=2",
    "trellis:path=sweeps;num_layers=1;cell=coupled;hidden_taps=0",  # no hidden weights: a QRNN
    "trellis:path=layers;num_layers=8;cell=lstm;hidden_taps=2",
]
TRANSFORMER = "transformer:num_layers=2;heads=2"
STACKS = ["gru", "tcn", "qrnn", TRANSFORMER, "lru:num_layers=2", "min-gru:num_layers=2"]


@dataclass(frozen=True)
class Contest:
    """One task: its recipe, the contestants, their size, minutes per run, and flags for all of them.

    `runs` names the contest whose folder it uses: what both have in common is trained once.
    """

    recipe: str
    bodies: list[str]
    parameters: float
    minutes: float
    flags: dict[str, str] = field(default_factory=dict)
    seeds: int = 1
    runs: str | None = None


def stacks(steps: int, tcn: str = "tcn") -> list[str]:
    """The others for a task that needs all steps: the transformer has a window as long as the sequences."""
    longest = {TRANSFORMER: f"{TRANSFORMER};window={steps}", "tcn": tcn}
    return [longest.get(name, name) for name in STACKS]


def memory(recipe: str, steps: int) -> Contest:
    return Contest(recipe, ["trellis", GATED_SWEEPS, "lstm", *stacks(steps)], 4e4, 3)


def pixels(data: str, own: str) -> Contest:
    """Trellis networks with the paper's dilations and with some of their own; the TCN has its published taps."""
    mine = f"trellis:{own};output_size=null"  # the head reads all channels, as the recipe's does
    others = ["lstm", *stacks(784, "tcn:kernel_size=7"), "dilated-gru:num_layers=9"]
    return Contest("perm-mnist-small", ["trellis", mine, SWEEPS, *others], 0.1e6, 10, {"data.name": data})


def text(
    name: str, parameters: float, own: str = "", more: Sequence[str] = (), flags: dict[str, str] | None = None
) -> dict[str, Contest]:
    """Two contests: the ways through the trellis and LSTMs with three seeds, then these and the others with one.

    Args:
        name: of the corpus.
        parameters: of every contestant.
        own: options of the ways.
        more: further contestants of both contests.
        flags: for all contestants.
    """
    few = [*(f"{way}{own}" for way in WAYS), *more, "lstm:num_layers=1", "lstm:num_layers=2"]
    contest = Contest(f"{name}-small", [*few, *STACKS], parameters, 10, {"training.sample": "0", **(flags or {})})
    return {f"{name}-ways": replace(contest, bodies=few, seeds=3, runs=name), name: contest}


def vowels(folder: Path) -> Contest:
    """Nine speakers by two vowels; the folder has the two `.ts` files of the archive."""
    files = {"path": folder / "JapaneseVowels_TRAIN.ts", "test_path": folder / "JapaneseVowels_TEST.ts"}
    flags = {"data.name": "ts", **{f"data.options.{name}": str(path) for name, path in files.items()}}
    flags |= {"data.options.valid_items": "54"}
    layers = "trellis:num_layers=5;dilation=[1,1,2,4,8]"
    return Contest("my-labels", [layers, SWEEPS, "lstm", *STACKS], 0.1e6, 3, flags)


CONTESTS = {
    "jsb": Contest("jsb-small", ["trellis", SWEEPS, "lstm", *STACKS], 0.1e6, 4),
    "nottingham": Contest("nottingham-small", ["trellis", SWEEPS, "lstm", *STACKS], 0.1e6, 4),
    "adding": memory("adding", 600),
    "copy-memory": memory("copy-memory", 1020),
    **text("char-ptb", 0.7e6),
    **text(  # in less than an epoch dropout can only slow down, so nobody has any
        "word-ptb",
        2.4e6,
        ";aux_every=null;aux_weight=null;hidden_dropout=0;weight_dropout=0",
        [f"{way};hidden_dropout=0;weight_dropout=0;aux_every=null;aux_weight=null;read_all=true" for way in WAYS[:2]],
        {"model.input_dropout": "0", "model.output_dropout": "0", "model.read_all": "false"},
    ),
    "perm-mnist": pixels("perm-mnist", "kernel_size=28;num_layers=3;dilation=[28,1,28]"),
    "seq-mnist": pixels("seq-mnist", "kernel_size=3;num_layers=8;dilation=[1,28,2,56,4,112,8,224]"),
}


def hold(name: str, contest: Contest, folder: Path, share: float, clock: str, seeds: int) -> None:
    """Hold a contest, or continue it, and write its results."""
    flags = [part for key, value in contest.flags.items() for part in (f"--{key}", value)]
    terms = ["--minutes", f"{contest.minutes * share:g}", "--seeds", str(seeds), "--clock", clock]
    place = folder / (contest.runs or name)
    size = ["--parameters", f"{contest.parameters:g}", "--folder", str(place)]
    code = trellisnet(["versus", contest.recipe, "--bodies", ",".join(contest.bodies), *terms, *size, *flags])
    if code:
        raise SystemExit(code)
    results = json.loads((place / "results.json").read_text(encoding="utf-8"))
    with replacing(RESULTS / f"{name}.json") as (path,):
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="of contests; default all")
    parser.add_argument("--vowels", type=Path, help="folder with JapaneseVowels_TRAIN.ts and JapaneseVowels_TEST.ts")
    parser.add_argument("--share", type=float, default=1.0, help="of the minutes of each run")
    parser.add_argument("--seeds", type=int, help="default: those of each contest")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    given = parser.parse_args()
    contests = CONTESTS if given.vowels is None else {**CONTESTS, "japanese-vowels": vowels(given.vowels)}
    if unknown := set(given.names) - set(contests):
        parser.error(f"no contest is called {unknown.pop()}: choose among {', '.join(contests)}")
    for name in given.names or contests:
        contest = contests[name]
        hold(name, contest, given.folder, given.share, given.clock, given.seeds or contest.seeds)


if __name__ == "__main__":
    main()
