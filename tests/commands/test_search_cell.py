"""`trellisnet search-cell`: killed and resumed it finds the same; candidates that diverge are dropped."""

import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from trellisnet.cli import main
from trellisnet.commands import sharing
from trellisnet.commands.experiment import read_experiment
from trellisnet.core.cells.definition import PARTS, read_text
from trellisnet.training import cell_search
from trellisnet.training.cell_search import Search, Terms
from trellisnet.training.cell_space import SEEDS, mutated, random_cell
from trellisnet.training.metrics import MSE
from trellisnet.training.progress import Progress
from trellisnet.training.runs import Run

RECIPE = """
data: {name: adding, options: {steps: 6, train_items: 32, test_items: 8}}
model: {hidden_size: 4, num_layers: 2}
training: {batch_size: 8, evaluation_batch: 8, log_every: 2}
"""
FLAGS = ["--steps", "2", "--candidates", "8"]


class Killed(BaseException):
    pass


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))
    for module in ("report", "cell_search"):
        monkeypatch.setattr(f"trellisnet.training.reporting.{module}.has_matplotlib", lambda: False)
    (tmp_path / "my.yaml").write_text(RECIPE)


def results(folder="runs/search-my"):
    return json.loads(Path(folder, "results.json").read_text(encoding="utf-8"))


def test_killed_and_resumed_it_finds_the_same(monkeypatch, capsys):
    assert main(["search-cell", "my.yaml", *FLAGS, "--folder", "whole"]) == 0
    steps, advance = [], Progress.advance

    def advance_or_die(self, at, *args):
        advance(self, at, *args)
        steps.append(at)
        if len(steps) in (4, 15, 30):  # in the noise, in the first and in the second rung
            raise Killed

    monkeypatch.setattr(Progress, "advance", advance_or_die)
    for _ in range(3):
        with pytest.raises(Killed):
            main(["search-cell", "my.yaml", *FLAGS])
    assert main(["search-cell", "my.yaml", *FLAGS]) == 0
    assert results() == results("whole")
    found = [[each["cell"] for each in stage] for stage in results()["stages"].values()]
    assert [len(stage) for stage in found] == [3, 8, 2]  # the LSTM cell is one of the last two
    assert [each["name"] for each in found[1]][:4] == ["lstm", "gru", "coupled", "affine-nas"]
    assert len({tuple(each[part] for part in PARTS) for each in found[1]}) == 8
    lowest = min(each["value"] for each in results()["stages"]["rung-2"])
    best = next(each["cell"] for each in results()["stages"]["rung-2"] if each["value"] == lowest)
    assert read_text("runs/search-my/best.yaml").to_dict() == best
    count = len(steps)
    assert main(["search-cell", "my.yaml", *FLAGS]) == 0  # nothing is left to do
    assert len(steps) == count
    assert "best: --model.cell runs/search-my/best.yaml" in capsys.readouterr().out
    assert main(["train", "my.yaml", "--model.cell", "runs/search-my/best.yaml", "--training.max_steps", "2",
                 "--to", "run"]) == 0  # fmt: skip
    Path("runs/search-my/best.yaml").unlink()
    config = Run.open(Path("run")).config
    assert json.loads(config.model.cell) == best  # the run has the cell itself, not the path
    assert main(["evaluate", "run"]) == 0
    assert Run.open(Path("run")).metrics()[-1]["step"] == 2


def test_a_process_that_is_killed_leaves_what_another_can_finish():
    """By the system, in the middle of a candidate: no `finally` runs."""
    code = """if True:
        import os, signal, sys
        from trellisnet.cli import main
        from trellisnet.training.progress import Progress
        steps, advance = [], Progress.advance
        def advance_or_die(self, at, *args):
            advance(self, at, *args)
            steps.append(at)
            if len(steps) == 11:  # the first step of the third candidate of the first rung
                os.kill(os.getpid(), signal.SIGKILL)
        Progress.advance = advance_or_die
        main(sys.argv[1:])"""
    flags = ["search-cell", "my.yaml", "--steps", "2", "--candidates", "4"]
    killed = subprocess.run([sys.executable, "-c", code, *flags], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert [path.name for path in sorted(Path("runs/search-my/rung-1").glob("*/result.json"))] == ["result.json"] * 2
    assert Path("runs/search-my/rung-1/0002").is_dir()
    assert main(flags) == 0
    assert main([*flags, "--folder", "whole"]) == 0
    assert results() == results("whole")


def test_random_search_begins_without_known_cells():
    assert main(["search-cell", "my.yaml", *FLAGS, "--strategy", "random"]) == 0
    stages = results("runs/search-my-random")["stages"]
    assert all(each["cell"]["name"].startswith("cell-") for each in stages["rung-1"])
    assert "lstm" in [each["cell"]["name"] for each in stages["rung-2"]]
    assert not list(Path("runs/search-my-random/rung-1").glob("*/checkpoints"))


def test_candidates_that_diverge_are_dropped(monkeypatch):
    bad = read_text("{name: bad, factor: g1 * g1, offset: g1 + g1, hidden: m * m}")
    monkeypatch.setattr(cell_search, "SEEDS", {**SEEDS, "coupled": bad})
    flags = ["--training.learning_rate", "1e20", "--training.optimiser", "sgd", "--steps", "4", "--candidates", "4"]
    assert main(["search-cell", "my.yaml", *flags]) == 0
    dropped = [each for each in results()["stages"]["rung-1"] if each["cell"]["name"] == "bad"]
    assert "not a finite number" in dropped[0]["failed"]
    assert "diverged" in Path("runs/search-my/report.html").read_text(encoding="utf-8")


def test_workers_take_different_candidates_and_those_of_a_killed_one():
    config = read_experiment({"recipe": "my.yaml"}, {"model.cell": SEEDS["lstm"].text}, ())
    one, other = (Search(Path("s"), config, {}, MSE, Terms(4, None, 1), "evolution") for _ in range(2))
    claims = [one._claim(), other._claim(), one._claim()]
    assert [job.number for job, _ in claims] == [0, 1, 2]
    assert other._claim() == (None, None)  # the first rung waits until the noise is measured
    claims[1][1].release()  # its process was killed
    job, lock = one._claim()
    assert job.number == 1
    for _, each in (claims[0], claims[2], (job, lock)):
        each.release()


def test_workers_are_processes_whose_results_are_printed_once(monkeypatch, capsys):
    flags, started = ["search-cell", "my.yaml", "--steps", "2", "--candidates", "4"], []

    class Worker:
        def __init__(self, command, **options):
            started.append((command[3:], options["stdout"]))

        def wait(self):
            return 0

    assert main(flags) == 0
    alone = capsys.readouterr().out
    assert "rung-1" in alone
    monkeypatch.setattr(sharing, "subprocess", SimpleNamespace(Popen=Worker, DEVNULL=subprocess.DEVNULL))
    monkeypatch.setattr(sys, "argv", ["trellisnet", *flags, "--workers", "2"])
    assert main([*flags, "--workers", "2"]) == 0
    assert started == [([*flags, "--workers", "2", "--workers", "1"], subprocess.DEVNULL)] * 2
    assert capsys.readouterr().out == alone


@pytest.mark.parametrize(("flags", "message"), [
    ([], "needs one of --minutes and --steps"),
    (["--steps", "1", "--minutes", "1"], "needs one of --minutes and --steps"),
    (["--steps", "1", "--clock", "cpu"], "--clock belongs to --minutes"),
    (["--steps", "1", "--candidates", "3"], "--candidates must be an integer >= 4"),
    (["--steps", "1", "--model.cell", "gru"], "search-cell sets model.cell for all candidates"),
    (["--steps", "1", "--model.body", "lstm"], "unknown flag --model.cell"),
])  # fmt: skip
def test_errors(flags, message, capsys):
    assert main(["search-cell", "my.yaml", *flags]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_has_one_search(capsys):
    Path("a").mkdir()
    Path("a/search.json").write_text('{"recipe": "other.yaml"}')
    assert main(["search-cell", "my.yaml", *FLAGS, "--folder", "a"]) == 2
    assert "a was started with recipe = 'other.yaml', got 'my.yaml'" in capsys.readouterr().err


def test_the_stages_use_the_budget():
    for candidates in (4, 9, 32, 256):
        stages = Terms(candidates, minutes=120.0).stages()
        beside = [0, 0, *[1] * (len(stages) - 2)]  # the LSTM cell
        assert sum((s.size + more) * s.budget for s, more in zip(stages, beside, strict=True)) == pytest.approx(120)
    assert [stage.size for stage in stages] == [3, 256, 64, 16, 4]


def test_random_cells_and_mutations_are_valid_and_read_again():
    generator = random.Random(1)
    for number in range(200):
        cell = random_cell(generator, f"cell-{number}")
        for _ in range(5):
            other = mutated(cell, generator, cell.name)
            assert other.parts != cell.parts
            assert read_text(other.text) == other
            assert read_text(yaml.safe_dump(other.to_dict(), default_flow_style=True, width=9999)) == other
            cell = other
