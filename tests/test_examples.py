"""Every example runs, in a shorter version, and still shows what it says."""

import runpy
from pathlib import Path

import pytest
import torch

from trellisnet import TrellisLM, Vocabulary

FOLDER = Path(__file__).parents[1] / "examples"


def classify_sequences(main):
    assert main(count=2400, longest=96) > 0.7  # guessing has 0.25, forgetting the first tone 0.5


def forecast_series(main):
    error = main(windows=320)
    assert error["trellis"] < min(error["a day ago"], error["a week ago"], error["last value"])


def character_model(main):
    bits = main(steps=40, characters=20)
    assert bits["trellis"] < bits["frequencies"]


def continue_lstm(main):
    loss = main(lstm_steps=100, further_steps=30)
    assert loss["difference"] < 1e-5
    assert loss["dense trellis"] == pytest.approx(loss["the same as a trellis"], abs=1e-5)
    assert loss["dense trellis, trained further"] < loss["dense trellis"] - 0.05


def own_cell(main):
    result = main(count=1000)
    assert max(result["2 pieces"], result["60 pieces"]) < 1e-12
    assert result["peephole"] < 0.8  # always saying zero has an error of nearly 1


def stream_onnx(main):
    pytest.importorskip("onnxruntime", reason="needs the extra export")
    vocabulary = Vocabulary("abcdef", "characters")
    TrellisLM(6, 4, 8, 1, vocabulary=vocabulary).export("step.onnx")
    assert main("step.onnx", prompts=("ab", "c"), characters=5) == main("step.onnx", prompts=("ab", "c"), characters=5)


CHECKS = {
    check.__name__: check
    for check in (classify_sequences, forecast_series, character_model, continue_lstm, own_cell, stream_onnx)
}


@pytest.fixture
def _as_a_program():
    torch.set_default_dtype(torch.float32)  # conftest sets it back
    yield
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("_as_a_program")
@pytest.mark.parametrize("name", CHECKS)
def test_an_example_shows_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    CHECKS[name](runpy.run_path(str(FOLDER / f"{name}.py"))["main"])


def test_every_example_is_checked():
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_an_example_names_its_command(name):
    assert f"python examples/{name}.py" in (FOLDER / f"{name}.py").read_text()
