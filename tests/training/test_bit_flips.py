"""One bit flipped in each file of a checkpoint, a run and the cache, one at a time: noticed, or provably harmless."""

import json
import os

import numpy as np
import pytest
import torch

from trellisnet import predict
from trellisnet.checksums import damage
from trellisnet.cli import main
from trellisnet.data.files.cache import cached
from trellisnet.training.checkpoints import load_checkpoint, load_latest, save_checkpoint
from trellisnet.training.runs import Run
from trellisnet.training.trained import load_task

FLIPS = 200  # per file
OF_RUN = int(os.environ.get("TRELLISNET_FLIPS", "2"))  # per file of a run
NEVER_READ = {"log.txt", "report.html", ".lock"}


def flips(path, count=FLIPS):
    """Write the file with another bit flipped in each turn; at last as it was."""
    content, generator = path.read_bytes(), np.random.default_rng(0)
    for _ in range(count):
        changed = bytearray(content)
        changed[generator.integers(len(content))] ^= 1 << int(generator.integers(8))
        path.write_bytes(changed)
        yield
    path.write_bytes(content)


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_checkpoint(tmp_path, suffix):
    state = {"step": 3, "model": {"weight": torch.randn(4, 3)}, "history": [0.25, 1.5], "data": "abc"}
    save_checkpoint(tmp_path, 3, state)
    noticed = 0
    for _ in flips(tmp_path / f"step-3.{suffix}"):
        try:
            found = load_checkpoint(tmp_path, 3)
        except ValueError:
            noticed += 1
            continue
        assert torch.equal(found.pop("model")["weight"], state["model"]["weight"])
        assert found == {name: value for name, value in state.items() if name != "model"}
    assert noticed > 0.9 * FLIPS


def test_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRELLISNET_CACHE", str(tmp_path))
    entry = cached("ids", "0" * 20, lambda folder: np.save(folder / "ids.npy", np.arange(50)))
    for path in sorted(entry.iterdir()):
        content = path.read_bytes()
        for _ in flips(path):
            if damage(entry) is None:  # the list of checksums may be written in another way, never say another thing
                assert path.name == "checksums.json"
                assert json.loads(path.read_text()) == json.loads(content)


@pytest.fixture
def run(tmp_path):
    """A finished run, and its predictions, metrics and results."""
    torch.set_default_dtype(torch.float32)
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["x", *(str(i % 7) for i in range(60)), ""]))
    flags = ["--data.options.path", str(table), "--data.options.values", "x", "--data.options.window", "4"]
    flags += ["--model.hidden_size", "4", "--model.num_layers", "1", "--training.epochs", "1"]
    assert main(["train", "my-series", *flags, "--training.batch_size", "8", "--to", str(tmp_path / "run")]) == 0
    return tmp_path / "run"


def used(run):
    """What evaluation, prediction, comparison and resuming read of a run."""
    data = load_task(run).facts()
    task = {which: load_task(run, which) for which in ("best", "last")}
    weights = [value.tolist() for each in task.values() for value in each.model.state_dict().values()]
    opened = Run.open(run)
    found = predict(run, np.ones((1, 4, 1))), opened.metrics(), opened.read_json("result.json")
    state = load_latest(run / "checkpoints", warned.append)
    return json.dumps([data, weights, found, str(state), opened.config.to_dict()])


warned: list[str] = []


def test_a_run(run, capsys):
    expected, noticed, all_flips = used(run), 0, 0
    for path in sorted(path for path in run.rglob("*") if path.is_file() and path.name not in NEVER_READ):
        for _ in flips(path, OF_RUN):
            warned.clear()
            all_flips += 1
            try:
                found = used(run)
            except ValueError as error:
                messages, found = [str(error), *warned], None
            else:
                messages = warned
            noticed += bool(messages)
            assert messages or found == expected, path
            assert all(path.name in message or "checkpoint" in message for message in messages), messages
    assert used(run) == expected
    with capsys.disabled():
        print(f"{noticed} of {all_flips} noticed", end=" ")
    assert noticed > 0.9 * all_flips
