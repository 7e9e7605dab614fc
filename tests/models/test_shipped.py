"""The trained models of the package, by name."""

import json
import shutil

import pytest
import torch

from ship import ship
from tiny import tiny_config, tiny_sequences
from trellisnet import LanguageModel, SequenceRegressor
from trellisnet.checksums import CHECKSUMS, damage
from trellisnet.cli import main
from trellisnet.models import shipped
from trellisnet.models.pretrained import CONFIG
from trellisnet.models.shipped import FOLDER, find_run, pretrained_names
from trellisnet.training import tasks
from trellisnet.training.fit import train_new
from trellisnet.training.trained import load_model, load_task


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", pretrained_names())
def test_every_model_loads_by_its_name(name):
    model, facts = load_model(name)
    assert model.num_parameters == json.loads((FOLDER / name / "result.json").read_text())["parameters"]
    assert facts["task"]
    assert not {path.name for path in (FOLDER / name).iterdir()} & {"checkpoints", "last", "log.txt", "report.html"}
    assert "predictions" not in json.loads((FOLDER / name / "result.json").read_text())  # only reports show them
    assert sum(path.stat().st_size for path in (FOLDER / name).rglob("*")) < 2.1e6


def test_a_model_has_the_published_result():
    task = load_task("adding")
    published = json.loads((FOLDER / "adding" / "result.json").read_text())["metrics"]["test"]["mse"]
    assert task.evaluate_alone("test")["mse"] == pytest.approx(published, rel=1e-3)
    assert published < 1e-3  # always guessing the mean: 1/6


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["seq-mnist", "perm-mnist"])
def test_a_pixel_model_has_the_published_result(name, real_data, monkeypatch):
    monkeypatch.setenv("TRELLISNET_DATA", str(real_data))
    published = json.loads((FOLDER / name / "result.json").read_text())["metrics"]["test"]
    assert load_task(name).evaluate_alone("test") == pytest.approx(published, rel=1e-3)
    assert published["accuracy"] > {"seq-mnist": 0.992, "perm-mnist": 0.9813}[name]  # the paper's


@pytest.mark.parametrize("name", pretrained_names())
def test_every_file_of_a_model_has_a_checksum(name):
    recorded = json.loads((FOLDER / name / CHECKSUMS).read_text())["files"]
    there = {path.relative_to(FOLDER / name).as_posix() for path in (FOLDER / name).rglob("*") if path.is_file()}
    assert recorded.keys() == there - {CHECKSUMS}
    assert damage(FOLDER / name) is None


def test_a_flipped_bit_in_any_file_is_one_line(tmp_path, monkeypatch, capsys):
    """Also in the list of the checksums, and for everything that knows the name."""
    shutil.copytree(FOLDER, tmp_path / "models")
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "models")
    folder = tmp_path / "models" / "adding"
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        content = bytearray(path.read_bytes())
        for place in (0, len(content) // 2, len(content) - 1):
            changed = bytearray(content)
            changed[place] ^= 1
            path.write_bytes(changed)
            with pytest.raises(ValueError, match=rf"model adding is damaged: .*{path.name}.*; install trel"):
                SequenceRegressor.from_pretrained("adding")
        assert main(["evaluate", "adding"]) == 2
        said = capsys.readouterr().err
        assert "the pretrained model adding is damaged" in said
        assert said.count("\n") == 1
        path.write_bytes(content)
    SequenceRegressor.from_pretrained("adding")
    (folder / "best" / "task.json").unlink()
    with pytest.raises(ValueError, match=r"is damaged: best/task\.json: No such file"):
        load_task("adding")


def test_evaluate_knows_the_name(capsys):
    assert main(["evaluate", "adding", "--split", "valid"]) == 0
    assert "mse" in capsys.readouterr().out


def test_a_folder_comes_first(tmp_path):
    SequenceRegressor.from_pretrained("adding").save_pretrained(tmp_path / "adding")
    assert find_run("adding") == (tmp_path / "adding").relative_to(tmp_path)
    (tmp_path / "adding" / CONFIG).write_text("{")
    with pytest.raises(ValueError, match=r"adding/config\.json is not valid JSON"):
        SequenceRegressor.from_pretrained("adding")


def test_unknown_names_list_the_known_ones(capsys):
    for call in (LanguageModel.from_pretrained, load_task):
        with pytest.raises(
            FileNotFoundError, match=r"copy-memori is not a run, .* model \(adding, .*did you mean 'copy-mem"
        ):
            call("copy-memori")
    assert main(["evaluate", "copy-memori"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(FileNotFoundError, match=r"runs/adding/config\.json not found"):
        SequenceRegressor.from_pretrained("runs/adding")


def test_a_model_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="describes a 'TrellisRegressor', expected 'LanguageModel'"):
        LanguageModel.from_pretrained("adding")


def test_a_run_becomes_a_pretrained_model(tmp_path, monkeypatch):
    data = tiny_sequences()
    monkeypatch.setattr(tasks, "load", lambda name, **options: data)
    run = train_new(tiny_config(text=False), "run", tmp_path / "run").folder
    ship(run, tmp_path / "shipped")
    assert load_task(tmp_path / "shipped").evaluate_alone("test") == load_task(run).evaluate_alone("test")
    files = [{path.name for path in folder.iterdir()} for folder in (tmp_path / "shipped", FOLDER / "adding")]
    assert files[0] == files[1]
    assert damage(tmp_path / "shipped") is None
    assert not (tmp_path / "shipped" / "best" / CHECKSUMS).exists()  # one list for all files
    (run / "result.json").unlink()
    with pytest.raises(ValueError, match="is not a finished run"):
        ship(run, tmp_path / "again")
