"""Command lines of small runs in one process or several, and what they have written."""

import contextlib
import io
import json
import os
import subprocess
import sys

from trellisnet.cli import main

SEQUENCES = [
    "adding",
    "--data.options.steps",
    "30",
    "--data.options.train_items",
    "200",
    "--data.options.test_items",
    "21",
]
SEQUENCES += ["--model.num_layers", "5", "--model.dilation", "[1,2,4,8,16]", "--model.hidden_size", "12"]
WORDS = ["my-text", "--data.options.kind", "words", "--model.hidden_size", "16", "--model.embedding_size", "8"]
WORDS += ["--model.num_layers", "4", "--model.hidden_dropout", "0", "--model.output_dropout", "0"]
WORDS += ["--training.steps", "10", "--training.sample", "0", "--training.depths", "[[1, [1, 5]]]"]
COMMON = ["--training.epochs", "2", "--training.log_every", "1", "--training.batch_size", "8"]
COMMON += ["--training.evaluation_batch", "6", "--training.save_minutes", "0"]


def command_of(processes, arguments):
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes), "-m"]
    return [sys.executable, *start, "trellisnet", "train", *arguments]


def train(processes, arguments, cwd):
    if processes == 1:  # this one: nothing has to start
        with contextlib.chdir(cwd), contextlib.redirect_stderr(io.StringIO()) as said:
            assert main(["train", *arguments]) == 0, said.getvalue()
        return said.getvalue()
    command = command_of(processes, arguments)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stderr


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines(True) if line.endswith("\n")]
