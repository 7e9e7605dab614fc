"""One bit flipped in each file of a checkpoint and of the cache, one file at a time: noticed, or provably harmless."""

import json

import numpy as np
import pytest
import torch

from trellisnet.data.files.cache import cached, damage
from trellisnet.training.checkpoints import load_checkpoint, save_checkpoint

FLIPS = 200  # per file


def flips(path):
    """Write the file with another bit flipped in each turn; at last as it was."""
    content, generator = path.read_bytes(), np.random.default_rng(0)
    for _ in range(FLIPS):
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
