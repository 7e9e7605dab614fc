import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from processes import COMMON, SEQUENCES, WORDS, command_of, metrics, train
from torch import distributed


@pytest.fixture(autouse=True)
def _single():
    torch.set_default_dtype(torch.float32)


@pytest.mark.skipif(not distributed.is_available(), reason="this torch has no distributed package")
@pytest.mark.parametrize("task", [WORDS, SEQUENCES], ids=["words", "sequences"])
def test_two_processes_learn_as_one(task, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"a line of {i * i % 17} words and {i % 5}\n" for i in range(400)))
    path = ["--data.options.path", str(text)] if task is WORDS else []
    for processes in (1, 2):
        train(processes, [*task, *path, *COMMON, "--to", str(tmp_path / str(processes))], tmp_path)
    one, two = metrics(tmp_path / "1"), metrics(tmp_path / "2")
    assert len(one) == len(two) >= 50
    for a, b in zip(one, two, strict=True):
        assert a.keys() == b.keys()
        for name in ("loss", "learning_rate"):
            if name in a:
                assert a[name] == pytest.approx(b[name], abs=1e-5)
        for name, value in a.get("valid", {}).items():
            assert value == pytest.approx(b["valid"][name], abs=1e-4)
        for depth, found in a.get("depths", {}).items():
            assert found == pytest.approx(b["depths"][depth], abs=1e-4)
    assert ("depths" in one[-1]) == (task is WORDS)


@pytest.mark.skipif(not distributed.is_available(), reason="this torch has no distributed package")
def test_two_processes_share_an_adaptive_softmax(tmp_path):
    """Whose rare clusters have no gradient in most steps."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"a line of {i * i % 17} words and {i % 5}\n" for i in range(100)))
    task = [*WORDS, "--data.options.path", str(text), *COMMON, "--model.head", "adaptive"]
    train(2, [*task, "--model.cutoffs", "[2,12]", "--to", str(tmp_path / "run")], tmp_path)
    assert metrics(tmp_path / "run")


@pytest.mark.skipif(not distributed.is_available(), reason="this torch has no distributed package")
def test_two_processes_resume_bit_by_bit(tmp_path):
    """With dropout, whose masks are each process's own, carried history, random depths and random windows."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"a line of {i * i % 17} words and {i % 5}\n" for i in range(300)))
    task = [*WORDS, "--data.options.path", str(text), *COMMON, "--model.hidden_dropout", "0.3"]
    task += ["--training.random_windows", "true"]
    train(2, [*task, "--to", str(tmp_path / "whole")], tmp_path)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    checkpoints = sorted((tmp_path / "cut" / "checkpoints").glob("*.json"), key=lambda path: int(path.stem[5:]))
    checkpoints[-1].unlink()  # as if it had been stopped before the last was written
    lines = (tmp_path / "cut" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cut" / "metrics.jsonl").write_text("".join(lines[:-2]))
    for name in ("result.json", "checksums.json", "report.html", "last/model.safetensors"):
        (tmp_path / "cut" / name).unlink()
    assert "resumes from step" in train(2, ["--resume", str(tmp_path / "cut")], tmp_path)
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "cut")
    files = [(tmp_path / name / "last" / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert files[0] == files[1]


@pytest.mark.skipif(not distributed.is_available(), reason="this torch has no distributed package")
def test_a_run_outlives_a_process_and_goes_on_with_another_number(tmp_path):
    """One of two processes is killed, torchrun starts both again; then one process takes over."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"a line of {i * i % 17} words and {i % 5}\n" for i in range(150)))
    task = [*WORDS, "--data.options.path", str(text), *COMMON]
    train(1, [*task, "--to", str(tmp_path / "one")], tmp_path)
    command = command_of(2, task)
    command.insert(command.index("--standalone"), "--max-restarts=1")
    run = tmp_path / "runs" / "my-text-1"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and (not (run / "metrics.jsonl").exists() or len(metrics(run)) < 4):
            time.sleep(0.02)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(max(map(int, children)), signal.SIGKILL)  # the second process: the first one has a lower number
        said = process.communicate()[1]
    assert process.returncode == 0, said
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["my-text-1"]
    again = "resume with: trellisnet train --resume runs/my-text-1"
    assert "process 0: another process has ended, so this one stops after step" in said
    assert again in said
    assert "resumes from step" in said
    two = metrics(run)
    checkpoints = sorted((run / "checkpoints").glob("*.json"), key=lambda path: int(path.stem[5:]))
    checkpoints[-1].unlink()
    (run / "result.json").unlink()
    assert "1 instead of 2 processes" in train(1, ["--resume", str(run)], tmp_path)
    for found in (two, metrics(run)):
        for a, b in zip(found, metrics(tmp_path / "one"), strict=True):
            assert a.get("loss") == pytest.approx(b.get("loss"), abs=1e-5)


REAL = {
    "words": [
        "word-ptb-small",
        *(f"--model.{name}_dropout=0" for name in ("embedding", "input", "hidden", "output", "weight")),
    ],
    "pixels": ["perm-mnist-small", *(f"--model.{name}_dropout=0" for name in ("hidden", "output"))],
}


@pytest.mark.corpora
@pytest.mark.skipif(not distributed.is_available(), reason="this torch has no distributed package")
@pytest.mark.parametrize("task", REAL)
def test_two_processes_learn_as_one_on_real_data(task, real_data, tmp_path):
    """The first 50 steps; then each run is asked to stop."""
    losses = {}
    for processes in (1, 2):
        run = tmp_path / str(processes)
        flags = [*REAL[task], "--training.log_every", "1", "--to", str(run), "--data.root", real_data]
        with subprocess.Popen(command_of(processes, flags), cwd=tmp_path) as process:
            while process.poll() is None and not (run / "metrics.jsonl").exists():
                time.sleep(0.1)
            while process.poll() is None and len(metrics(run)) < 50:
                time.sleep(0.1)
            assert process.poll() is None, "it ended before 50 steps"
            process.terminate()
        losses[processes] = [entry["loss"] for entry in metrics(run)[:50]]
    assert len(losses[1]) == 50
    assert losses[1] == pytest.approx(losses[2], abs=1e-5)
