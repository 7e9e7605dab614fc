"""The README and the documentation do what they say: their Python and their commands run as they stand."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed

from tiny_program import make_tiny
from trellisnet.cli import main

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
}
AUTHORS = Path(__file__).parent / "models" / "fixtures" / "lm-tied.pkl"
PROGRAM = Path(__file__).with_name("tiny_program.py")


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", PAGES[page], re.S)


def commands(page):
    """Lines of the shell, without comments and continued over line ends."""
    text = "\n".join(blocks(page, "bash")).replace("\\\n", " ")
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


ABOUT_PROCESSES = "docs/tutorials/scaling.md"
NEEDS = {  # pages that need an extra
    "docs/export.md": "onnxscript",
    "docs/sklearn.md": "sklearn",
    "docs/trackers.md": "tensorboard",
    "docs/transformers.md": "transformers",
    "docs/tune.md": "optuna",
}


def run_python(page):
    if page in NEEDS:
        pytest.importorskip(NEEDS[page], reason="needs an extra")
    names: dict = {}
    for block in blocks(page, "python"):  # one after the other, as a reader would
        exec(compile(block, page, "exec"), names)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.chdir(tmp_path)  # some of it writes files


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python") or commands(page)])
def test_every_block_runs(page, monkeypatch, capsys):
    """The page's Python, then its commands, with tiny models and little data in the place of the real ones."""
    run_python(page)
    shutil.copy(AUTHORS, "model.pkl")
    Path("new.txt").write_text("some new\ntext\n")
    make_tiny(monkeypatch)
    for words in commands(page):
        capsys.readouterr()
        if words[:2] == ["trellisnet", "bench"]:
            words += ["--hidden_size", "8", "--num_layers", "3", "--seconds", "0"]  # what comes last counts
        if words[0] == "torchrun" and page == ABOUT_PROCESSES and "--resume" in words:
            run_in_two_processes(words)
        elif words[0] in ("trellisnet", "torchrun"):  # one process for torchrun too: it starts many times faster
            assert main(words[words.index("trellisnet") + 1 :]) == 0, (words, capsys.readouterr().err)
        else:
            check(words)


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_is_named_exists(page):
    for path in re.findall(r"pytest (tests/[\w/.]+)", PAGES[page]):
        assert (ROOT / path).exists()


def run_in_two_processes(words):
    if not distributed.is_available():
        pytest.skip("this torch has no distributed package")
    arguments = words[words.index("trellisnet") + 1 :]
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(PROGRAM)]
    paths = os.pathsep.join(str(path) for path in (PROGRAM.parent, PROGRAM.parent / "training"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    done = subprocess.run([*start, *arguments], check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, (words, done.stderr)


def check(words):
    """What is no command of this package: that it can be meant."""
    match words:
        case ["make", target, *_]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), words
        case ["python", script, *_] if script.endswith(".py"):
            assert (ROOT / script).is_file(), words
        case ["pip", "install", *wanted]:
            extras = re.findall(r"\w+(?=[\w,]*\])", " ".join(wanted))
            for extra in extras:
                assert re.search(rf"^{extra} = ", (ROOT / "pyproject.toml").read_text(), re.M), words
        case ["git" | "cd" | "tensorboard" | "mkdocs" | "pre-commit", *_]:
            pass
        case _:
            pytest.fail(f"a command that no test knows: {shlex.join(words)}")
