import json

import pytest
import torch

from trellisnet import TrellisNet
from trellisnet.baselines.rnn import LstmBody
from trellisnet.models.body import pack_state, unpack_state
from trellisnet.training.distribution import Workers, is_lost
from trellisnet.training.elastic import launched_run, restore_own, share_of
from trellisnet.training.runs import launch_id

BODIES = {
    "trellis": lambda: TrellisNet(3, 6, 4, dilation=[1, 2], kernel_size=3),
    "sweeps": lambda: TrellisNet(3, 6, 2, path="sweeps"),
    "lstm": lambda: LstmBody(3, 6, 2),
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("parts", [1, 2])
def test_carried_states_go_where_their_rows_go(body, parts):
    """Of 8 rows, in 1 or 2 parts per process, from 4 processes to 2 to 1 to 4."""
    net, x = BODIES[body](), torch.randn(5, 8, 3)

    def of(count):
        states = [net(rows)[1] for rows in x.tensor_split(count * parts, 1)]
        packed = [pack_state(state) for state in states]
        return [packed[i * parts : (i + 1) * parts] for i in range(count)]

    saved = of(4)
    for count in (2, 1, 4):
        saved = [share_of(saved, rank, count) for rank in range(count)]
        for own, expected in zip(saved, of(count), strict=True):
            for state, wanted in zip(own, expected, strict=True):
                assert state["structure"] == wanted["structure"]
                pairs = zip(state["leaves"], wanted["leaves"], strict=True)
                assert all(torch.allclose(a, b) if b is not None else a is None for a, b in pairs)
                unpack_state(state, "cpu")


def test_the_start_of_a_text_has_no_state():
    saved = [[pack_state(None)], [pack_state(None)]]
    assert [unpack_state(each, "cpu") for each in share_of(saved, 0, 1)] == [None]


def test_other_processes_draw_other_numbers_and_the_same_ones_go_on():
    saved = [{"carried": [pack_state(None)], "generators": {"cpu": torch.get_rng_state()}}] * 2
    expected, said = torch.rand(3), []
    restore_own(saved, Workers(1, 2), (0, 7), said.append)
    assert torch.equal(torch.rand(3), expected)
    assert not said
    drawn = set()
    for rank in range(4):
        restore_own(saved, Workers(rank, 4), (0, 7), said.append)
        drawn.add(torch.rand(()).item())
    assert len(drawn) == 4
    assert said == ["4 instead of 2 processes: from here on equal up to rounding only"] * 4


def test_a_run_is_recognised_by_the_launcher_that_started_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(folder, launch):
        folder.mkdir(parents=True)
        for name, text in (
            ("config.yaml", ""),
            ("task.json", "{}"),
            ("environment.json", json.dumps({"launch": launch})),
        ):
            (folder / name).write_text(text)

    runs = tmp_path / "runs"
    for name, launch in (("demo-1", "job"), ("demo-2", "job"), ("demo-10", "other"), ("demo-x-11", "job")):
        write(runs / name, launch)
    assert launch_id() is None
    assert launched_run("demo", None) is None
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    assert launched_run("demo", None).name == "demo-2"
    assert launched_run("demo", runs / "demo-1") == runs / "demo-1"
    assert launched_run("demo", runs / "demo-10") is None
    assert launched_run("demo", tmp_path / "new") is None
    (runs / "demo-2" / "task.json").unlink()  # killed before it was complete
    assert launched_run("demo", None).name == "demo-1"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # torchrun without a rendezvous
    assert "process" in launch_id()


def test_which_errors_tell_that_a_process_is_lost():
    gone = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:19134"
    assert is_lost(RuntimeError(gone))
    assert is_lost(torch.distributed.DistNetworkError("The client socket has timed out"))
    assert not is_lost(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
