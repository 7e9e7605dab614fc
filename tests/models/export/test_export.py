"""Exported files give what the model gives. Every export takes seconds, so that each one here tests several things."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from trellisnet import (
    Cell,
    LanguageModel,
    SequenceTagger,
    TrellisClassifier,
    TrellisLM,
    TrellisRegressor,
    Vocabulary,
)
from trellisnet.baselines.rnn import LstmBody
from trellisnet.cli import main
from trellisnet.models import export
from trellisnet.models.export.compare import largest_difference
from trellisnet.models.export.programs import make_program

TOLERANCE = 2e-6  # of single precision, over 60 steps
EXAMPLE = Path(__file__).parents[3] / "examples" / "stream_onnx.py"


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


def tiny_lm(**options):
    characters = Vocabulary("abcdefghijk", "characters")
    return TrellisLM(11, 8, 16, 3, weight_norm=True, vocabulary=characters, **options)


@pytest.fixture(scope="module")
def step_file(tmp_path_factory):
    """One step of a language model, written by the command."""
    pytest.importorskip("onnxruntime", reason="needs the extra export")
    torch.set_default_dtype(torch.float32)
    folder = tmp_path_factory.mktemp("model")
    lm = tiny_lm()
    lm.save_pretrained(folder)
    assert main(["export", str(folder)]) == 0
    return lm.eval(), folder / "step.onnx"


def run(path, inputs):
    import onnxruntime  # noqa: PLC0415

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)


def test_a_step_has_named_tensors_and_is_small(step_file):
    import onnx  # noqa: PLC0415
    import onnxruntime  # noqa: PLC0415

    _, path = step_file
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == ["ids", "state_h", "state_c", "state_x"]
    assert [each.name for each in session.get_outputs()] == ["log_prob", *(f"next_state_{n}" for n in "hcx")]
    assert session.get_inputs()[1].shape == [3, "batch", 16]
    about = session.get_modelmeta().custom_metadata_map
    assert 0 < float(about["largest_difference"]) < TOLERANCE
    assert json.loads(about["vocabulary"])["tokens"] == list("abcdefghijk")
    assert about["model"] == "TrellisLM"
    # three layers, and every weight once: the kernel, the tied embedding and the biases, beside a few indices
    stored = sum(int(np.prod(tensor.dims)) for tensor in onnx.load(path).graph.initializer)
    plain = 2 * (8 + 16) * 64 + 64 + 11 * 8 + 11
    assert plain <= stored < plain + 60


def test_a_step_streams_what_the_model_reads(step_file):
    lm, path = step_file
    for batch in (1, 2, 7):
        ids = torch.randint(11, (batch, 5))
        state = {
            f"state_{name}": np.zeros((n, batch, c), np.float32)
            for name, n, c in (("h", 3, 16), ("c", 3, 16), ("x", 1, 8))
        }
        with torch.no_grad():
            expected = lm.log_prob(ids)
        for t in range(5):
            log_prob, *after = run(path, {"ids": ids[:, t].numpy(), **state})
            state = dict(zip(state, after, strict=True))
            assert np.abs(log_prob - expected[:, t].numpy()).max() < TOLERANCE


def test_the_example_runs_without_torch(step_file):
    _, path = step_file
    code = f"""
import json, runpy, sys
main = runpy.run_path({str(EXAMPLE)!r})["main"]
texts = main({str(path)!r}, prompts=("ab", "c"), characters=5)
print(json.dumps([texts, [name for name in ("torch", "trellisnet") if name in sys.modules]]))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    texts, imported = json.loads(done.stdout.splitlines()[-1])
    assert imported == []
    assert [text[:n] for text, n in zip(texts, (2, 1), strict=True)] == ["ab", "c"]
    assert all(len(text) >= 6 for text in texts)


def test_sequences_of_unequal_lengths(tmp_path):
    pytest.importorskip("onnxruntime", reason="needs the extra export")
    model = TrellisClassifier(3, 8, 2, num_classes=4)
    done = model.export(tmp_path / "sequence.onnx", length=5, lengths=True)
    assert done.inputs == {"x": ["batch", 5, 3], "lengths": ["batch"]}
    assert done.outputs == {"prediction": ["batch", 4]}
    assert done.difference < TOLERANCE
    x, lengths = torch.randn(3, 5, 3), [5, 1, 4]
    (prediction,) = run(done.path, {"x": x.numpy(), "lengths": np.array(lengths)})
    assert np.abs(prediction - model.eval()(x, lengths=lengths).prediction.detach().numpy()).max() < TOLERANCE


def test_int8(tmp_path):
    pytest.importorskip("onnxruntime", reason="needs the extra export")
    lm = LanguageModel(LstmBody(16, hidden_size=64, output_size=16), vocab_size=200)  # tied
    done = lm.export(tmp_path / "step.onnx", int8=True)
    assert done.size < 0.5 * 4 * sum(p.numel() for p in lm.parameters())
    assert TOLERANCE < done.difference < 1  # of log-probabilities down to -7: a matrix in the wrong order is far off


def test_a_program_of_torch(tmp_path):
    model = TrellisRegressor(3, 8, 2, each_step=True, groups=[5, 3], weight_norm=True)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    done = model.export(tmp_path / "step.pt2", "pt2")
    assert done.difference < TOLERANCE
    facts = {"trellisnet.json": ""}
    step = torch.export.load(done.path, extra_files=facts).module()
    assert json.loads(facts["trellisnet.json"])["largest_difference"] == done.difference
    x = torch.randn(4, 3, 3)
    state = [torch.zeros(n, 4, c) for n, c in ((2, 8), (2, 8))]
    expected = model.eval()(x).prediction
    for t in range(3):
        y, *state = step(x[:, t], *state)
        assert (y - expected[:, t]).abs().max() < TOLERANCE
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.net.kernel.weight_norm  # the exported copy has none


@pytest.mark.skipif(
    "TRELLISNET_TEST_AOTI" not in os.environ, reason="compiles C++ for a minute: set TRELLISNET_TEST_AOTI"
)
def test_a_compiled_program(tmp_path):
    model = TrellisClassifier(3, 8, 2, num_classes=4)
    done = model.export(tmp_path / "step.pt2", "aoti")
    assert done.difference < TOLERANCE
    y, *_ = torch._inductor.aoti_load_package(str(done.path))(
        torch.zeros(1, 3), *make_program(model, None, False).zero_state(1).values()
    )
    assert y.shape == (1, 4)


class Impatient(Cell):
    gates, has_memory = 1, False

    def __call__(self, pre, memory):
        return (pre.squeeze(-2).tanh() if pre.sum() > 0 else pre.squeeze(-2)), None


class Counting(nn.Module):
    input_size = output_size = 3

    def forward(self, x, state=None):
        state = x if state is None else torch.cat([state, x])
        return x + len(state), state


class Learned(nn.Module):
    input_size = output_size = 3

    def forward(self, x, state=None):
        state = torch.ones_like(x[:1]) if state is None else state
        return x + state, state


REFUSED = [
    (tiny_lm, {"path": "a.onnx", "format": "onxx"}, "format must be one of 'onnx', 'pt2', 'aoti', got 'onxx'"),
    (tiny_lm, {"path": "a.pt2"}, r"path must end in \.onnx for the format 'onnx', got 'a\.pt2'"),
    (tiny_lm, {"path": "nowhere/a.onnx"}, "path must be in a folder that exists, got 'nowhere/a.onnx'"),
    (tiny_lm, {"path": "a.onnx", "length": "dynamic"}, "'dynamic': the time axis of a file cannot be dynamic"),
    (tiny_lm, {"path": "a.onnx", "length": 0}, "length must be an integer >= 1, got 0"),
    (tiny_lm, {"path": "a.onnx", "lengths": True}, "lengths=True belongs to sequences of a stated length"),
    (tiny_lm, {"path": "a.pt2", "format": "pt2", "int8": True}, "int8=True belongs to format 'onnx'"),
    (lambda: tiny_lm().bfloat16(), {"path": "a.onnx"}, "weights in float32: call model.float"),
    (lambda: LanguageModel(Counting(), 5), {"path": "a.pt2", "format": "pt2"}, "Counting changes its form"),
    (
        lambda: LanguageModel(Learned(), 5),
        {"path": "a.pt2", "format": "pt2"},
        "Learned does not start from a state",
    ),
    (
        lambda: LanguageModel(Learned(), 5),
        {"path": "a.pt2", "format": "pt2", "length": 4, "lengths": True},
        "needs a body with `lengths`, got Learned",
    ),
    (
        lambda: TrellisClassifier(3, 8, 2, 4, cell=Impatient()),
        {"path": "a.pt2", "format": "pt2", "length": 4},
        r"__call__ \(.*test_export.py, line \d+\) decides in Python on values of tensors",
    ),
    (
        lambda: TrellisClassifier(3, 8, 9, 4, tolerance=1e-4),
        {"path": "a.pt2", "format": "pt2", "length": 4},
        r"tolerance cannot be exported.*: set net.tolerance = None, so that it is num_layers = 9",
    ),
]


@pytest.mark.parametrize(("make", "options", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_what_cannot_be_exported(make, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError, OSError), match=message):
        make().export(**options)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_file_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "largest_difference", lambda *args: 0.25)
    with pytest.raises(RuntimeError, match="was not written: the file's results differ"):
        TrellisClassifier(3, 4, 1, 2).export(tmp_path / "a.pt2", "pt2")
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_is_not_a_number_is_the_largest_difference():
    """Also if the first result and the other batches are right."""
    model = TrellisClassifier(3, 4, 2, 2).eval()
    program = make_program(model, None, False)

    def run(inputs):
        results = dict(zip(program.outputs, program(*inputs.values()), strict=True))
        if len(inputs["x"]) == 2:
            results["next_state_c"] = results["next_state_c"] * float("nan")
        return results

    assert np.isnan(largest_difference(model, program, run))


def test_a_missing_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match="needs the onnxruntime package, of the extra 'export'"):
        tiny_lm().export(tmp_path / "a.onnx")


def test_a_folder_without_a_model(tmp_path, capsys):
    assert main(["export", str(tmp_path)]) == 2
    assert "has no model of this package" in capsys.readouterr().err
    (tmp_path / "config.json").write_text('{"model": "Other"}')
    assert main(["export", str(tmp_path)]) == 2
    assert "describes a 'Other'" in capsys.readouterr().err


def test_quantiles_and_tags(tmp_path):
    """The files give quantiles that do not cross, and scores of each step; a tagger of both directions is refused."""
    pytest.importorskip("onnxruntime", reason="needs the extra export")
    x = torch.randn(4, 5, 2)
    model = TrellisRegressor(2, 6, 3, num_values=2, quantiles=[0.1, 0.5, 0.8, 0.9]).eval()
    model.export(tmp_path / "quantiles.onnx", length=5)
    (found,) = run(tmp_path / "quantiles.onnx", {"x": x.numpy()})
    np.testing.assert_allclose(found, model.predict(x), atol=TOLERANCE)
    assert (np.diff(found) >= 0).all()
    tagger = SequenceTagger(LstmBody(2, hidden_size=4), 3).eval()
    tagger.export(tmp_path / "tags.pt2", format="pt2", length=5)
    scores = torch.export.load(tmp_path / "tags.pt2").module()(x)[0]
    torch.testing.assert_close(scores, tagger(x).prediction, atol=TOLERANCE, rtol=0)
    with pytest.raises(ValueError, match="export needs a model that reads forwards only"):
        SequenceTagger(LstmBody(2, hidden_size=4), 3, bidirectional=True).export(tmp_path / "both.pt2", format="pt2")
