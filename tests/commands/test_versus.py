"""A contest of bodies, on a clock that counts one second per step."""

import json
import re
import shlex
from itertools import count
from types import SimpleNamespace

import pytest
import torch

from tiny import tiny_sequences, tiny_text
from trellisnet.cli import main, parse
from trellisnet.commands.train import train
from trellisnet.commands.versus import split_bodies
from trellisnet.training import clock, contest, tasks
from trellisnet.training.loop import Trainer
from trellisnet.training.non_finite import NotANumberError
from trellisnet.training.progress import Progress
from trellisnet.training.reporting import contest as contest_report
from trellisnet.training.reporting import report
from trellisnet.training.reporting.drawing import has_matplotlib
from trellisnet.training.runs import Run
from trellisnet.training.tasks import make_task

FLAGS = ["--model.embedding_size", "4", "--training.steps", "6", "--training.batch_size", "4", "--training.sample", "0"]
FLAGS += ["--training.learning_rate", "0.004"]
TERMS = ["--minutes", "0.5", "--parameters", "6000", "--seeds", "2"]
BODIES = "trellis:num_layers=3,lstm"
ONE = ["--rates", "1", "--seeds", "1"]


class Killed(BaseException):
    pass


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text())
    monkeypatch.setattr(contest, "STREAMED", 5)
    monkeypatch.setattr(report, "has_matplotlib", lambda: False)  # reports of runs take longer than the runs
    monkeypatch.setattr(contest_report, "has_matplotlib", lambda: False)
    ticks = count()
    monkeypatch.setattr(
        clock, "time", SimpleNamespace(monotonic=lambda: float(next(ticks)), process_time=lambda: next(ticks) / 2)
    )


def versus(folder, bodies=BODIES, *more):
    return main(["versus", "demo", "--bodies", bodies, *TERMS, *FLAGS, "--folder", str(folder), *more])


def content(folder):
    """The files of all finished runs."""
    runs = [path.parent for path in folder.glob("*/*/result.json")]
    return {
        path: path.read_bytes() for run in runs for path in run.rglob("*") if path.is_file() and path.name != ".lock"
    }


def test_a_contest(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(contest_report, "has_matplotlib", has_matplotlib)
    bodies = "trellis:num_layers=3;training.depths=[[0.5,2]],lstm"
    assert versus(tmp_path / "contest", bodies) == 0
    printed = capsys.readouterr()
    assert "note: training.depths counts epochs" in printed.err
    lines = printed.out.splitlines()
    assert [re.split(r"\s{2,}", line.strip())[3] for line in lines[1:3]] == ["2 of 2"] * 2
    results = json.loads((tmp_path / "contest" / "results.json").read_text())
    assert (results["minutes"], results["wanted_parameters"], results["metric"]) == (0.5, 6000, "bits")
    assert [one["name"] for one in results["contestants"]] == split_bodies(bodies)
    for one in results["contestants"]:
        assert one["parameters"] == pytest.approx(6000, rel=0.03)
        rates = {pilot["learning_rate"]: pilot["valid"] for pilot in one["pilots"]}
        assert list(rates) == [0.002, 0.004, 0.008]
        assert one["learning_rate"] == min(rates, key=rates.get)
        assert one["at_edge"] == (one["learning_rate"] != 0.004)
        assert one["seeds"] == [0, 1]
        assert one["steps"] == [30, 30]
        assert one["seconds_per_step"] == 1.0
        assert one["seconds_per_streamed_step"] > 0
        assert [[seconds for seconds, _ in curve] for curve in one["curves"]] == [[6, 12, 18, 24, 30]] * 2
        assert [min(value for _, value in curve) for curve in one["curves"]] == one["valid"]["values"]
        mean = sum(one["test"]["values"]) / 2
        assert one["test"]["mean"] == pytest.approx(mean)
        assert one["test"]["spread"] == pytest.approx(2**0.5 * abs(one["test"]["values"][0] - mean))
        for seed, command in enumerate(one["commands"]):
            folder = tmp_path / "contest" / contest.folder_name(one["name"]) / f"seed-{seed}"
            config = parse("train", train, shlex.split(command)[2:])["config"]
            assert make_task(config).config == Run.open(folder).config
    page = (tmp_path / "contest" / "report.html").read_text()
    assert page.count("<svg") == 6
    assert "trellis:num_layers=3" in page
    pilot = json.loads((tmp_path / "contest" / "lstm" / "pilot-0.004" / "result.json").read_text())
    assert list(pilot["metrics"]) == ["valid"]


def test_a_killed_contest_loses_nothing(tmp_path, monkeypatch):
    step = Trainer._step

    def step_or_die(self, *args):
        if self.run.folder.parts[-2:] == ("lstm", "seed-1") and self.step == 10:
            raise Killed
        return step(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", step_or_die)
        with pytest.raises(Killed):
            versus(tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert [len(one["seeds"]) for one in results["contestants"]] == [2, 0]  # written after each contestant
    kept = content(tmp_path)
    assert len({path.parent for path in kept if path.name == "result.json"}) == 5 + 4
    assert versus(tmp_path) == 0
    assert kept.items() <= content(tmp_path).items()
    assert "resumes from step 6" in (tmp_path / "lstm" / "seed-1" / "log.txt").read_text()
    results = json.loads((tmp_path / "results.json").read_text())
    assert [one["steps"] for one in results["contestants"]] == [[30, 30]] * 2
    finished = content(tmp_path)
    assert versus(tmp_path) == 0
    assert content(tmp_path) == finished


def test_an_interrupted_contest_is_saved(tmp_path, monkeypatch):
    step = Trainer._step

    def step_and_stop(self, *args):
        self.signals.stopping = self.run.folder.parts[-2:] == ("lstm", "seed-0") and self.step == 7
        return step(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", step_and_stop)
        assert versus(tmp_path, "lstm", *ONE) == 130
    assert versus(tmp_path, "lstm", *ONE) == 0
    assert "resumes from step 8" in (tmp_path / "lstm" / "seed-0" / "log.txt").read_text()
    (one,) = json.loads((tmp_path / "results.json").read_text())["contestants"]
    assert (one["pilots"], one["learning_rate"], one["at_edge"]) == ([], 0.004, False)


def test_a_rate_that_diverges_is_not_chosen(tmp_path, monkeypatch, capsys):
    step = Trainer._step

    def step_or_fail(self, *args):
        if self.config.learning_rate > 0.004 or self.run.folder.parts[-2] == "gru":
            raise NotANumberError("the loss is not a finite number")
        return step(self, *args)

    monkeypatch.setattr(Trainer, "_step", step_or_fail)
    assert versus(tmp_path, "lstm,gru") == 0
    lstm, gru = json.loads((tmp_path / "results.json").read_text())["contestants"]
    assert lstm["pilots"][2] == {"learning_rate": 0.008, "valid": None}
    assert lstm["learning_rate"] <= 0.004
    assert (gru["learning_rate"], gru["seeds"], gru["test"]["mean"]) == (None, [], None)
    assert "gru: all pilots diverged" in capsys.readouterr().err


def test_a_contest_by_cpu_time(tmp_path):
    assert versus(tmp_path, "lstm", *ONE, "--clock", "cpu") == 0
    results = json.loads((tmp_path / "results.json").read_text())
    (one,) = results["contestants"]
    assert (results["clock"], one["steps"], one["seconds_per_step"]) == ("cpu", [60], 0.5)
    assert "--training.clock cpu" in one["commands"][0]
    assert "0.5 minutes of CPU time each" in (tmp_path / "report.html").read_text()


def test_published_results_stand_beside_ours(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_sequences())
    flags = ["--model.num_layers", "2", "--training.batch_size", "4", "--folder", str(tmp_path)]
    command = ["versus", "seq-mnist", "--bodies", "tcn,gru", "--minutes", "0.1", *ONE, *flags]
    monkeypatch.setattr("sys.argv", ["trellisnet", *command])
    assert main(command) == 0
    assert "99.00 % (Generic TCN)" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    rows = re.findall(r"<tr>(.*?)</tr>", page[page.index("Published results") : page.index("Repeat the contest")])
    assert [re.findall("<td>(.*?)</td>", row)[2:] for row in rows[1:]] == [
        ["99.00 %", "-", "Generic TCN (Bai et al., 2018)"]
    ]
    assert "trellisnet versus seq-mnist" in page[page.index("Repeat the contest") : page.index("Repeat a run")]


def test_options_with_lists_and_of_training(tmp_path):
    assert versus(tmp_path, "trellis:num_layers=4;dilation=[1,2];training.clip=1,lstm:hidden_size=9", *ONE) == 0
    trellis, lstm = json.loads((tmp_path / "results.json").read_text())["contestants"]
    assert trellis["options"] == {"model.num_layers": "4", "model.dilation": "[1,2]", "training.clip": "1"}
    assert lstm["hidden_size"] == 9  # in place of the number of parameters for all
    assert (tmp_path / "trellis-num_layers=4-dilation=-1-2-training.clip=1" / "seed-0" / "report.html").exists()


def test_other_terms_need_another_folder(tmp_path, capsys):
    assert versus(tmp_path, "lstm", *ONE) == 0
    assert versus(tmp_path, "lstm", *ONE, "--minutes", "0.6") == 2
    assert "was started with other values: choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bodies", "lsm"], "--bodies: each body must be one of .*, got 'lsm', did you mean 'lstm'?"),
        (["--bodies", "lstm,"], "--bodies: each body must be one of .*, got ''"),
        (["--bodies", "lstm,lstm"], "--bodies must name contestants with different folders"),
        (["--bodies", "lstm:cell=gru"], "contestant lstm:cell=gru: unknown flag --model.cell with body 'lstm'"),
        (["--bodies", "lstm:droput=0"], "did you mean 'model.dropout'?"),
        (["--bodies", "lstm:num_layers"], "written BODY:key=value;key=value, got 'num_layers' in 'lstm:num_layers'"),
        (["--bodies", "lstm:dropout=2"], "contestant lstm:dropout=2: .* model.dropout must be in"),
        (["--bodies", "lstm:parameters=9"], "versus sets model.parameters for all contestants: use --parameters"),
        (["--bodies", "lstm", "--parameters", "10"], "contestant lstm: .* the smallest possible size is"),
        (["--bodies", "lstm", "--minutes", "0"], "--minutes must be a number > 0, got 0"),
        (["--bodies", "lstm", "--pilot_minutes", "0"], "--pilot_minutes must be a number > 0, got 0"),
        (["--bodies", "lstm", *ONE, "--pilot_minutes", "1"], "--pilot_minutes needs --rates of at least 2"),
        (["--bodies", "lstm", "--rates", "0"], "--rates must be an integer >= 1, got 0"),
        (["--bodies", "lstm", "--seeds", "0"], "--seeds must be an integer >= 1, got 0"),
        (["--bodies", "lstm", "--factor", "1"], "--factor must be a number > 1, got 1"),
        (["--bodies", "lstm", "--training.epochs", "3"], "versus sets training.epochs .*: use --minutes"),
        (["--bodies", "lstm", "--training.clock", "cpu"], "versus sets training.clock .*: use --clock"),
        (["--bodies", "lstm", "--clock", "sun"], "clock.*sun"),
        (["--bodies", "lstm", "--training.clip", "0"], "contestant lstm: training.clip must be a number > 0"),
        (["--bodies", "lstm", "--seds", "3"], "unknown flag --seds, did you mean '--seeds'?"),
        (["--minutes", "3"], "required: bodies"),
    ],
)
def test_mistakes_take_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    minutes = [] if "--minutes" in arguments else ["--minutes", "1"]
    assert main(["versus", "demo", *minutes, *arguments]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("trellisnet: ")
    assert re.search(message.replace("?", r"\?"), error)
    assert list(tmp_path.iterdir()) == []


def test_validation_chooses(tmp_path, capsys, monkeypatch):
    data = tiny_sequences()
    del data.splits["valid"]
    monkeypatch.setattr(tasks, "load", lambda name, **options: data)
    assert main(["versus", "seq-mnist", "--bodies", "lstm", "--minutes", "1", "--folder", str(tmp_path / "x")]) == 2
    assert "seq-mnist has no validation split to choose by" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
