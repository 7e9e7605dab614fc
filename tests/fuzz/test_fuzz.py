"""A short fuzz, and what longer ones found; `make fuzz N=100000 SEED=1` is for the night."""

import pytest
import torch

from fuzz.harness import Draw, Report, judge
from fuzz.runs import fuzz_calls, fuzz_lines
from trellisnet import TrainingConfig, TrellisClassifier, TrellisLM, TrellisNet, TrellisSeq2Seq, fit
from trellisnet.data import load
from trellisnet.training.values import from_text


@pytest.fixture(autouse=True)
def _as_users_have_it():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


def test_calls(tmp_path):
    report = fuzz_calls(250, 0, tmp_path)
    assert not report.findings, str(report)
    assert report.counts["works"] > 50
    assert report.counts["refused"] > 50


def test_command_lines(tmp_path):
    report = fuzz_lines(100, 0, tmp_path)
    assert not report.findings, str(report)


def test_the_judge_finds_what_must_not_happen():
    def fails():
        return {}["x"]

    for call, wrong in ((fails, None), (lambda: 1, "size"), (lambda: int("x"), None)):
        report = Report()
        judge(report, "a call", call, wrong=wrong)
        assert report.findings
    assert Draw(0).size() > 0


@pytest.mark.parametrize(("row", "error"), [([99], ValueError), ([-1], ValueError), ([1.5], TypeError)])
def test_translate_checks_tokens(row, error):
    model = TrellisSeq2Seq(12, 12, 4, 4, 1)
    with pytest.raises(error, match=r"sources\[0\]"):
        model.translate([row], end=0)
    with pytest.raises(TypeError, match="end"):
        model.translate([[1]], end=True)


def test_options_of_models_are_named():
    with pytest.raises(TypeError, match="hidden_size"):
        TrellisLM(12, 4, [], 2)
    with pytest.raises(TypeError, match="experts must be an integer"):
        TrellisLM(12, 4, 4, 2, experts=False)
    with pytest.raises(TypeError, match="latent_dropout must be a number"):
        TrellisLM(12, 4, 4, 2, head="mos", latent_dropout=[])
    with pytest.raises(TypeError, match="aux must be True or False"):
        TrellisNet(2, 4, 2)(torch.zeros(3, 1, 2), aux="")


def test_columns_must_be_names(tmp_path):
    (tmp_path / "x.csv").write_text("t,x\n1,2\n", encoding="utf-8")
    with pytest.raises(TypeError, match="time must be the name of a column, got 0"):
        load("series", path=tmp_path / "x.csv", task="forecasting", values=["x"], window=1, time=0)


def test_options_of_training_are_named(tmp_path):
    x, y = torch.zeros(8, 3, 1), [0, 1] * 4
    for options in ({"precision": []}, {"on_nan": 1.5}, {"clip": True}, {"warmup": False}, {"seed": -1}):
        with pytest.raises((TypeError, ValueError), match=next(iter(options))):
            fit(TrellisClassifier(1, 2, 1, 2), (x, y), TrainingConfig(**options), tmp_path / "run")
    with pytest.raises(TypeError, match="path must be a path"):
        load("series", path=0.5, task="forecasting")


def test_reconstruction_without_inner_layers():
    model = TrellisClassifier(2, 4, 2, 3, reconstruct_steps=torch.tensor(2), aux_every=4)
    assert model(torch.zeros(2, 5, 2), torch.tensor([0, 1])).loss.isfinite()


def test_a_temperature_may_be_any_number():
    assert len(TrellisLM(12, 4, 4, 2).generate([[1]], 2, temperature=10**40)[0]) == 3


def test_a_hash_is_no_comment_in_a_flag():
    assert from_text("separator", str | None, "#") == "#"
    assert from_text("values", list[str] | None, "#") == ["#"]
