"""Models that are divided among processes, and their checkpoints."""

import errno
import shutil
from types import SimpleNamespace

import pytest
import torch
from processes import COMMON, WORDS, metrics, train
from safetensors.torch import load_file
from torch import distributed, nn

from tiny import tiny_config, tiny_text
from trellisnet import TrainingConfig, TrellisLM, fit
from trellisnet.files import FullDiskError
from trellisnet.training import tasks
from trellisnet.training.checkpoints import DamagedError, load_checkpoint, save_checkpoint, saved_steps
from trellisnet.training.distribution import parallel, without_exchange, workers
from trellisnet.training.fit import train_new
from trellisnet.training.sharding import full, is_shard, whole

pytestmark = pytest.mark.skipif(not distributed.is_available(), reason="this torch has no distributed package")
TRAINED = ["--training.optimiser", "adamw", "--training.clip", "0.5", "--training.accumulate", "2"]
TRAINED += ["--training.average", "true", "--training.patience", "1", "--model.weight_norm", "true"]


@pytest.fixture(autouse=True)
def _single():
    torch.set_default_dtype(torch.float32)  # as in the processes that torchrun starts


def write_text(folder, lines=200):
    path = folder / "text.txt"
    path.write_text("".join(f"a line of {i * i % 17} words and {i % 5}\n" for i in range(lines)))
    return ["--data.options.path", str(path)]


def cut(run_folder, copy):
    """A copy of a finished run as if it had been stopped before its last checkpoint."""
    shutil.copytree(run_folder, copy)
    steps = saved_steps(copy / "checkpoints")
    (copy / "checkpoints" / f"step-{steps[-1]}.json").unlink()
    for name in ("result.json", "checksums.json", "report.html"):
        (copy / name).unlink()


def test_sharded_processes_learn_as_one_and_are_resumed_by_any_number(tmp_path):
    task = [*WORDS, *write_text(tmp_path), *COMMON, *TRAINED]
    train(1, [*task, "--to", str(tmp_path / "one")], tmp_path)
    sharded = [*task, "--training.shard", "true"]
    train(2, [*sharded, "--to", str(tmp_path / "two")], tmp_path)
    for name, processes in (("again", 2), ("alone", 1)):
        cut(tmp_path / "two", tmp_path / name)
        assert "resumes from step" in train(processes, ["--resume", str(tmp_path / name)], tmp_path)
    one, two, again, alone = (metrics(tmp_path / name) for name in ("one", "two", "again", "alone"))
    assert again == two
    for found in (two, alone):
        for a, b in zip(one, found, strict=True):
            assert a.keys() == b.keys()
            if "loss" in a:
                assert a["loss"] == pytest.approx(b["loss"], abs=1e-5)
            for name, value in a.get("valid", {}).items():
                assert value == pytest.approx(b["valid"][name], abs=1e-4)
    files = [load_file(tmp_path / name / "best" / "model.safetensors") for name in ("one", "two", "again")]
    assert all(torch.equal(files[1][name], files[2][name]) for name in files[1])
    for name, tensor in files[0].items():
        torch.testing.assert_close(files[1][name], tensor, rtol=0, atol=1e-4)
    assert TrellisLM.from_pretrained(tmp_path / "two" / "best").num_parameters


def test_sharded_processes_share_an_adaptive_softmax(tmp_path):
    """Whose rare clusters have no gradient in one of the processes."""
    task = [*WORDS, *write_text(tmp_path, 60), *COMMON, "--model.head", "adaptive", "--model.cutoffs", "[2,12]"]
    train(2, [*task, "--training.shard", "true", "--to", str(tmp_path / "run")], tmp_path)
    assert metrics(tmp_path / "run")[-1]["best"]


def test_one_process_can_shard_too(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text())
    plain, sharded = (
        train_new(tiny_config(epochs=1, shard=shard), "run", tmp_path / str(shard)) for shard in (False, True)
    )
    assert plain.metrics() == sharded.metrics()
    assert not distributed.is_initialized()


class Own(nn.Module):
    """A user's module, with buffers that change in training."""

    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(2), nn.Linear(2, 2)

    def forward(self, inputs, targets):
        prediction = self.out(self.norm(inputs[:, 0]))
        return SimpleNamespace(loss=nn.functional.cross_entropy(prediction, targets), prediction=prediction)


def test_a_model_of_ones_own_is_an_ordinary_one_after_its_training(tmp_path):
    x = torch.linspace(-1, 1, 240).sin().view(40, 3, 2)
    labels = (x[:, 0, 0] > 0).long()
    models = []
    for shard in (False, True):
        torch.manual_seed(0)
        model, options = Own(), TrainingConfig(epochs=2, batch_size=8, shard=shard)
        models.append(fit(model, (x.numpy(), labels.numpy()), options, tmp_path / str(shard)).model)
    plain, sharded = (model.state_dict() for model in models)
    assert plain.keys() == sharded.keys()
    assert all(torch.equal(plain[name], sharded[name]) for name in plain)
    models[1].load_state_dict(plain)
    models[1].train()(x, labels).loss.backward()
    assert models[1].out.weight.grad.shape == (2, 2)


@pytest.fixture
def group():
    with workers("cpu", group=True) as team:
        yield team


def test_gradients_of_parts_add_up(group):
    torch.manual_seed(0)
    plain = TrellisLM(11, 6, 8, num_layers=3, weight_norm=True)
    ids = torch.randint(11, (4, 8))
    plain(ids[:, :-1], ids[:, 1:]).loss.backward()
    expected = [parameter.grad for parameter in plain.parameters()]
    model = parallel(plain, group, sharded=True)
    parts = list(model.parameters())
    assert all(map(is_shard, parts))
    with without_exchange(model):
        (model(ids[:2, :-1], ids[:2, 1:]).loss / 2).backward()
    (model(ids[2:, :-1], ids[2:, 1:]).loss / 2).backward()
    for part, gradient in zip(parts, expected, strict=True):
        torch.testing.assert_close(full(part.grad), gradient, rtol=0, atol=1e-6)


def test_a_model_has_values_only_while_it_is_whole(group):
    torch.manual_seed(0)
    plain = TrellisLM(11, 6, 8, num_layers=3, weight_norm=True)
    values = [parameter.detach().clone() for parameter in plain.parameters()]
    model = parallel(plain, group, sharded=True)
    assert plain.num_parameters == sum(value.numel() for value in values)
    assert sum(parameter.untyped_storage().nbytes() for parameter in plain.parameters()) == 4 * len(values)
    with whole(model):
        assert all(map(torch.equal, plain.parameters(), values))
    assert all(parameter.isnan().all() for parameter in plain.parameters())
    model.fill()
    assert all(map(torch.equal, plain.parameters(), values))
    assert plain.head.weight is plain.embedding.weight
    plain.load_state_dict(TrellisLM(11, 6, 8, num_layers=3, weight_norm=True).state_dict())


@pytest.fixture
def state(group):
    torch.manual_seed(0)
    model = parallel(torch.nn.Linear(3, 5), group, sharded=True)
    return {"model": dict(model.named_parameters()), "rate": 0.5, "other": torch.arange(3)}


def test_checkpoints_of_sharded_models(state, tmp_path):
    expected = {name: full(tensor.detach()) for name, tensor in state["model"].items()}
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, state)
    assert sorted(path.name for path in tmp_path.glob("*.shards")) == ["step-2.shards", "step-3.shards"]
    mesh = next(iter(state["model"].values())).device_mesh
    for found, shards in ((load_checkpoint(tmp_path, 3), False), (load_checkpoint(tmp_path, 3, mesh), True)):
        assert found["rate"] == 0.5
        assert torch.equal(found["other"], torch.arange(3))
        for name, tensor in found["model"].items():
            assert is_shard(tensor) == shards
            assert torch.equal(full(tensor), expected[name])


def test_damaged_shards_are_noticed(state, tmp_path):
    save_checkpoint(tmp_path, 1, state)
    (path,) = (tmp_path / "step-1.shards").iterdir()
    whole_file = path.read_bytes()
    for content in (whole_file[:-1], b"", whole_file[:-1] + bytes([whole_file[-1] ^ 1])):
        path.write_bytes(content)
        with pytest.raises(DamagedError, match=r"step-1\.json is damaged: its checksum differs"):
            load_checkpoint(tmp_path, 1)
    shutil.rmtree(path.parent)
    with pytest.raises(DamagedError, match="its checksum differs"):
        load_checkpoint(tmp_path, 1)


def test_leftovers_of_a_killed_process_are_replaced(state, tmp_path):
    for step in (1, 7):
        (tmp_path / f"step-{step}.shards").mkdir()
        (tmp_path / f"step-{step}.shards" / "shard-00009-model-00001-of-00001.safetensors").write_text("half")
    save_checkpoint(tmp_path, 1, state)
    assert load_checkpoint(tmp_path, 1)["rate"] == 0.5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-1.json", "step-1.safetensors", "step-1.shards"]


def test_a_full_disk_is_named(state, tmp_path, monkeypatch):
    from torch.distributed.checkpoint import filesystem  # noqa: PLC0415  # slow to import

    def full_disk(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    save_checkpoint(tmp_path, 1, state)
    monkeypatch.setattr(filesystem, "_write_item", full_disk)
    with pytest.raises(FullDiskError, match=r"step-2\.shards cannot be written: No space left"):
        save_checkpoint(tmp_path, 2, state)
    assert load_checkpoint(tmp_path, 1)["rate"] == 0.5
    assert saved_steps(tmp_path) == [1]
