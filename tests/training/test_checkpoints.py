import json

import pytest
import torch

from trellisnet import TrellisNet
from trellisnet.models.body import pack_state, unpack_state
from trellisnet.training.checkpoints import DamagedError, load_checkpoint, load_latest, save_checkpoint, saved_steps

STATE = {
    "step": 3,
    "lr": 0.1,
    "history": [1.5, float("inf")],
    "optimiser": {"state": {0: {"exp_avg": torch.arange(3.0)}, 7: {}}, "groups": [{"betas": (0.9, 0.99)}]},
    "none": None,
    "flag": True,
    "bytes": torch.tensor([1, 2], dtype=torch.uint8),
}


def test_everything_comes_back(tmp_path):
    _, state = TrellisNet(3, 4, num_layers=2)(torch.randn(5, 2, 3))
    save_checkpoint(tmp_path, 3, {**STATE, "carried": [pack_state(state), pack_state(None)]})
    loaded = load_checkpoint(tmp_path, 3)
    assert torch.equal(loaded["optimiser"]["state"][0]["exp_avg"], torch.arange(3.0))
    assert loaded["optimiser"]["state"][7] == {}
    assert loaded["optimiser"]["groups"][0]["betas"] == [0.9, 0.99]
    assert loaded["history"] == STATE["history"]
    assert loaded["bytes"].dtype == torch.uint8
    assert loaded["none"] is None
    assert loaded["flag"] is True
    again, nothing = (unpack_state(each, "cpu") for each in loaded["carried"])
    assert nothing is None
    assert again.spans == state.spans
    for name in ("h", "c", "x"):
        assert torch.equal(getattr(again, name), getattr(state, name).detach())


def test_the_last_two_are_kept(tmp_path):
    for step in (1, 2, 10, 9):
        save_checkpoint(tmp_path, step, {"step": step})
    assert saved_steps(tmp_path) == [9, 10]
    assert len(list(tmp_path.iterdir())) == 4
    assert load_latest(tmp_path, print)["step"] == 10


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_is_found(tmp_path, suffix, damage):
    save_checkpoint(tmp_path, 1, STATE)
    save_checkpoint(tmp_path, 2, {**STATE, "lr": 0.25})
    path = tmp_path / f"step-2{suffix}"
    content = bytearray(path.read_bytes())
    if damage == "flip" and suffix == ".json":
        content = bytearray(content.replace(b"0.25", b"0.26"))
    elif damage == "flip":
        content[-1] ^= 1
    path.write_bytes(content[:-3] if damage == "cut" else content)
    warnings = []
    if damage == "remove":
        path.unlink()
    if damage != "remove" or suffix == ".safetensors":
        with pytest.raises(DamagedError, match=r"step-2\.json is damaged"):
            load_checkpoint(tmp_path, 2)
    assert load_latest(tmp_path, warnings.append)["lr"] == 0.1
    assert len(warnings) == (0 if damage == "remove" and suffix == ".json" else 1)


def test_nothing_was_saved(tmp_path):
    assert load_latest(tmp_path, print) is None


def test_what_cannot_be_saved_is_named(tmp_path):
    with pytest.raises(TypeError, match="a checkpoint cannot hold /a/b: object"):
        save_checkpoint(tmp_path, 1, {"a": {"b": object()}})
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_readable_without_this_package(tmp_path):
    save_checkpoint(tmp_path, 1, {"step": 1})
    assert json.loads((tmp_path / "step-1.json").read_text())["state"]


def test_a_checkpoint_of_another_format_is_not_taken_for_a_damaged_one(tmp_path):
    save_checkpoint(tmp_path, 3, {"step": 3})
    path = tmp_path / "step-3.json"
    content = json.loads(path.read_text())
    del content["format"]  # as 0.1.0 wrote it
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"step-3\.json has format 1, and training resumes only from format 4") as told:
        load_latest(tmp_path, print)
    assert not isinstance(told.value, DamagedError)
