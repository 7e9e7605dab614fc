"""Workers get the command of their parent; a program that writes down its arguments is in the place of Python."""

import os
import sys

import pytest

from trellisnet.commands.sharing import share

WORKER = """#!/bin/sh
echo "$@ threads=$OMP_NUM_THREADS" > "{folder}/$$"
echo the result
echo the progress >&2
exit {code}
"""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    def make(code):
        program = tmp_path / "worker"
        program.write_text(WORKER.format(folder=tmp_path, code=code))
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        monkeypatch.setattr(sys, "argv", ["trellisnet", "tune", "my.yaml", "--workers", "2"])
        monkeypatch.setattr(os, "cpu_count", lambda: 8)
        return tmp_path

    return make


def test_each_worker_runs_the_command_with_its_share_of_the_cores(worker, capfd):
    folder = worker(0)
    share(2)
    calls = [path.read_text().strip() for path in folder.iterdir() if path.name != "worker"]
    assert calls == ["-m trellisnet tune my.yaml --workers 2 --workers 1 threads=4"] * 2
    out, error = capfd.readouterr()
    assert out == ""  # the parent prints the results of all
    assert error.count("the progress") == 2


def test_a_worker_that_fails_is_told(worker):
    worker(3)
    with pytest.raises(RuntimeError, match="2 of 2 workers ended with an error"):
        share(2)
