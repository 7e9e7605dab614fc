import os
import re
import subprocess
import sys

import pytest
import torch
from filelock import FileLock

from trellisnet import __version__
from trellisnet.cli import COMMANDS, main
from trellisnet.training.reading import read_config
from trellisnet.training.recipes import load_recipe
from trellisnet.training.runs import Run

DEMO = read_config(load_recipe("demo"), "demo")
TRELLISNET = [sys.executable, "-m", "trellisnet"]


def call(*arguments, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*TRELLISNET, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, **options)


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", out, re.M)
    assert main([]) == 0
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.endswith(f"{__version__}\n")


def test_help_does_not_import_torch():
    code = "import sys; from trellisnet.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: trellisnet {command}")
    assert "Args:" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "unknown command 'trian', did you mean 'train'?"),
        (["train"], "RECIPE is needed, such as `demo`, or --resume RUN"),
        (["train", "word-ptp"], "unknown recipe 'word-ptp', did you mean 'word-ptb'?"),
        (["train", "demo", "--model.hiden_size", "3"], "did you mean 'model.hidden_size'?"),
        (["train", "demo", "--model.hidden_size", "wide"], "model.hidden_size"),
        (["train", "demo", "--training.optimiser", "adagrad"], "training.optimiser"),
        (["train", "demo", "--training.momentum", "0.9"], "training.momentum belongs to training.optimiser=sgd"),
        (["train", "demo", "--training.device", "warp"], "training.device 'warp' cannot be used"),
        (["train", "--resume", "nowhere"], "nowhere is not a run"),
        (["train", "demo", "--resume", "nowhere"], "RECIPE cannot be changed"),
        (["train", "--resume", "nowhere", "--to", "x"], "--to cannot be changed, only --training.epochs"),
        (["train", "--resume", "nowhere", "--training.seed", "1"], "--training.seed cannot be changed"),
        (["train", "demo", "--resume", "nowhere", "--from", "x"], "RECIPE cannot be changed"),
        (["train", "--resume", "nowhere", "--from", "x"], "--from cannot be changed"),
        (["train", "--resume", "nowhere", "--training.epochs", "3"], "nowhere is not a run"),
        (["train", "demo", "--data.options.speed", "3"], "data.options.speed of the dataset 'python-library'; its"),
        (["train", "my-text"], "path"),
        (["train", "my-text", "--data.options.path", "nowhere.txt"], "nowhere.txt"),
        (["evaluate"], "the following arguments are required: run"),
        (["evaluate", "nowhere"], "nowhere is not a run"),
        (["generate", "nowhere"], "nowhere is not a run, a saved model or a pretrained model"),
        (["import-authors", "nowhere.pkl", "--to", "model"], "nowhere.pkl"),
        (["import-authors", "nowhere.pkl", "--to", __file__], "--to must be a new or empty folder, got"),
        (["evaluate", "run", "--cache_theta", "0.5"], "--cache_theta belongs to --cache_size, which is not given"),
        (["evaluate", "run", "--dynamic_window", "5"], "--dynamic_window belongs to --dynamic_rate"),
        (["evaluate", "run", "--limit", "5"], "--limit belongs to --cache_size or --dynamic_rate"),
        (["evaluate", "run", "--limit", "-5", "--cache_size", "9"], "--limit must be an integer >= 2, got -5"),
        (["evaluate", "run", "--evaluation", "windows", "--cache_size", "9"], "--evaluation cannot be chosen with"),
        (["evaluate", "run", "--depths", "2", "--cache_size", "9"], "--depths cannot be chosen with --cache_size"),
        (["evaluate", "run", "--depths", "1,0"], "--depths must be integers >= 1 separated by commas, such as 1,2,4,8"),
        (["train", "demo", "--training.depths", "[[1,[1,2,3]]]"], "[number, integer or [integer, integer]], got [[1, "),
        (["evaluate", "run", "--dynamic_rate", "0"], "--dynamic_rate must be a number > 0, got 0"),
        (["evaluate", "run", "--dynamic_rate", "1", "--dynamic_window", "0"], "--dynamic_window must be an integer"),
        (["generate", "run", "--beams", "4", "--top_k", "3"], "--top_k 3 contradicts --beams 4"),
        (["generate", "run", "--temperature", "0", "--seed", "0"], "--seed 0 contradicts --temperature 0"),
        (["train", "adding", "--training.steps", "9"], "training.steps belongs to text, and adding is not text: got 9"),
        (["ablate", "demo", "--only", "no-nothing"], "--only must name ablations, got 'no-nothing'"),
    ],
)
def test_mistakes_take_one_line_and_exit_code_2(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("trellisnet: ")
    assert error.count("\n") == 1
    assert message in error
    assert list(tmp_path.iterdir()) == []


def test_of_several_processes_one_tells_a_mistake(capsys, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert main(["train", "word-ptp"]) == 2
    assert capsys.readouterr().err == ""
    assert main(["evaluate", "nowhere"]) == 2  # could be missing on this machine only
    assert capsys.readouterr().err.startswith("trellisnet, process 1: nowhere is not a run")


def test_a_run_that_was_killed_before_it_began_can_be_begun(tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    for name in (".lock", ".config.yaml.1-2.tmp", "checkpoints/.step-3.json.1-2.tmp"):
        (tmp_path / "run" / name).touch()
    with pytest.raises(ValueError, match="is in use"):  # something was saved, or half of it
        Run.create(DEMO, "x", tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / ".step-3.json.1-2.tmp").unlink()
    Run.create(DEMO, "x", tmp_path / "run").release()
    assert not list((tmp_path / "run").rglob("*.tmp"))


def test_what_a_killed_save_left_is_removed_when_a_run_goes_on(tmp_path):
    run = Run.create(DEMO, "x", tmp_path / "run")
    run.release()
    (tmp_path / "run" / "best").mkdir()
    left = [tmp_path / "run" / name for name in ("checkpoints/.step-3.json.1-2.tmp", "best/.config.json.1-2.tmp")]
    for path in left:
        path.touch()
    with Run.open(tmp_path / "run").locked():
        assert not any(path.exists() for path in left)


def test_debug_shows_the_traceback(tmp_path):
    done = call("train", "--resume", str(tmp_path), "--debug")
    assert "Traceback" in done.stderr
    assert "Traceback" not in call("train", "--resume", str(tmp_path)).stderr


def test_from_training_to_writing(tmp_path, monkeypatch, capsys):
    """The way of a user with a text of their own."""
    torch.set_default_dtype(torch.float32)
    monkeypatch.chdir(tmp_path)

    def call(*arguments, code=0):
        assert main([*arguments]) == code
        return capsys.readouterr()

    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {i * i % 97} of {i % 13}\n" for i in range(800)))
    flags = ["--data.options.path", str(text), "--model.hidden_size", "16", "--model.num_layers", "3"]
    flags += ["--model.embedding_size", "8", "--training.epochs", "2", "--training.sample", "20"]
    done = call("train", "my-text", *flags, "--training.steps", "20")
    run = tmp_path / "runs" / "my-text-1"
    for name in ("config.yaml", "metrics.jsonl", "log.txt", "environment.json", "result.json", "report.html"):
        assert (run / name).stat().st_size
    told = re.search(r"best model, test: .*bits (\d+\.\d+)", done.err)
    judged = call("evaluate", str(run))
    assert f"bits {told[1]}" in judged.out
    assert "streaming: every token once" in judged.out
    windows = call("evaluate", str(run), "--evaluation", "windows")
    assert "the authors' way" in windows.out
    adapted = call("evaluate", str(run), "--cache_size", "50", "--dynamic_rate", "0.001", "--limit", "80")
    assert "continuous cache (size 50" in adapted.out
    assert "dynamic evaluation" in adapted.out
    wrote = call("generate", str(run), "--prompt", "line ", "--tokens", "30", "--seed", "1")
    assert wrote.out.startswith("line ")
    assert wrote.out == call("generate", str(run), "--prompt", "line ", "--tokens", "30", "--seed", "1").out
    assert call("generate", str(run), "--prompt", "line ", "--top_k", "0", code=2).out == ""
    assert "is in use" in call("train", "my-text", *flags, "--to", str(run), code=2).err
    compared = call("compare", str(run))
    assert "my-text-1" in compared.out


def test_two_programs_do_not_share_a_run(tmp_path):
    run = Run.create(DEMO, "x", tmp_path / "run")
    run.release()
    with FileLock(run.folder / ".lock"):
        done = call("train", "--resume", str(run.folder))
    assert done.returncode == 2
    assert "is in use by another process" in done.stderr
