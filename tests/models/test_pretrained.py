import copy
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from trellisnet import Cell, TrellisClassifier, TrellisLM, TrellisRegressor, Vocabulary

LANGUAGE_MODELS = [
    {},
    {"tied": False},
    {"head": "mos", "experts": 2, "weight_norm": True},
    {"head": "adaptive", "cutoffs": (3, 6)},
    {"head": "cluster", "cutoffs": [3, 6], "dilation": (1, 2), "history": "discard", "horizon": 4},
    {"groups": (4, 4, 2), "cell": "gru", "kernel_size": 3, "dtype": torch.float32},
]


def train_a_step(model, *batch):
    optimiser = torch.optim.Adam(model.parameters())
    model(*batch).loss.backward()
    optimiser.step()
    return model.eval()


@pytest.mark.parametrize("options", LANGUAGE_MODELS, ids=str)
def test_saved_and_copied_language_models_have_equal_outputs(options, tmp_path):
    ids = torch.randint(9, (2, 8))
    lm = train_a_step(TrellisLM(9, 6, 10, num_layers=3, **options), ids, ids)
    lm.save_pretrained(tmp_path / "model")
    loaded = TrellisLM.from_pretrained(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]
    for other in (loaded, copy.deepcopy(lm)):
        assert torch.equal(other.log_prob(ids), lm.log_prob(ids))
        assert vars(other.options) == vars(lm.options)
        assert not other.training
    assert loaded.num_parameters == lm.num_parameters
    loaded.save_pretrained(tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


def test_saved_classifiers_and_regressors_have_equal_outputs(tmp_path):
    x = torch.randn(4, 7, 3)
    for model, targets in [
        (TrellisClassifier(3, 10, 4, num_classes=5, dilation=[1, 2]), torch.tensor([0, 1, 4, 4])),
        (TrellisRegressor(3, 10, 4, each_step=True), torch.randn(4, 7)),
    ]:
        train_a_step(model, x, targets).save_pretrained(tmp_path)
        loaded = type(model).from_pretrained(tmp_path)
        assert torch.equal(loaded(x).prediction, model(x).prediction)


def test_the_vocabulary_is_saved_with_the_model(tmp_path):
    vocabulary = Vocabulary(["<unk>", "ä", "日本", "\n"], "words")
    lm = TrellisLM(4, 6, 10, num_layers=3, vocabulary=vocabulary)
    lm.save_pretrained(tmp_path)
    loaded = TrellisLM.from_pretrained(tmp_path)
    assert loaded.vocabulary.tokens == vocabulary.tokens
    assert loaded.generate("日本", 3) == lm.eval().generate("日本", 3)
    with pytest.raises(ValueError, match="vocabulary must have vocab_size = 5 words, got 4"):
        TrellisLM(5, 6, 10, num_layers=3, vocabulary=vocabulary)


def test_arguments_can_be_changed_when_loading(tmp_path):
    TrellisLM(9, 6, 10, num_layers=3, hidden_dropout=0.1).save_pretrained(tmp_path)
    lm = TrellisLM.from_pretrained(tmp_path, dtype=torch.float32, hidden_dropout=0.5, memory="recompute")
    assert lm.net.hidden_dropout == 0.5
    assert lm.net.memory == "recompute"
    assert lm.embedding.weight.dtype == torch.float32


class Leaky(Cell):
    gates, has_memory = 1, True

    def __call__(self, pre, memory):
        state = torch.lerp(memory, pre[:, 0].tanh(), 0.5)
        return state, state


def test_a_user_defined_cell_must_be_passed_again(tmp_path):
    lm = TrellisLM(9, 6, 10, num_layers=3, cell=Leaky()).eval()
    lm.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"built with a cell of its own: pass cell=Leaky\(\)"):
        TrellisLM.from_pretrained(tmp_path)
    ids = torch.randint(9, (2, 8))
    assert torch.equal(TrellisLM.from_pretrained(tmp_path, cell=Leaky()).log_prob(ids), lm.log_prob(ids))


@pytest.fixture
def folder(tmp_path):
    TrellisLM(9, 6, 10, num_layers=3).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("options", [{"weight_norm": True}, {"groups": (4, 6), "cell": "tanh"}], ids=str)
def test_a_model_of_the_first_format_is_read(options, tmp_path):
    lm = TrellisLM(9, 6, 10, num_layers=3, **options).eval()
    lm.save_pretrained(tmp_path)
    change_config(tmp_path, format_version=1)

    def transpose(tensors):
        for name in [name for name in tensors if name.startswith("net.kernel.") and tensors[name].dim() == 3]:
            tensors[name] = tensors[name].transpose(1, 2).contiguous()

    change_weights(tmp_path, transpose)
    ids = torch.randint(9, (2, 8))
    assert torch.equal(TrellisLM.from_pretrained(tmp_path).log_prob(ids), lm.log_prob(ids))


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_weights(folder, edit):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: change_config(f, format_version=3), r"config\.json has format_version 3, .* reads 1 to 2"),
        (lambda f: change_config(f, format_version=None), "has format_version None"),
        (
            lambda f: change_config(f, model="TrellisClassifier"),
            "a 'TrellisClassifier', expected 'TrellisLM'",
        ),
        (lambda f: change_config(f, arguments={"vocab_size": 9}), "does not describe a TrellisLM: .*embedding_size"),
        (lambda f: (f / "config.json").write_text("{"), r"config\.json is not valid JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "has format_version None"),
        (lambda f: change_weights(f, lambda t: t.pop("head.bias")), "head.bias is missing"),
        (lambda f: change_weights(f, lambda t: t.update(more=torch.zeros(1))), "more is not part of the model"),
        (
            lambda f: change_weights(f, lambda t: t.update({"head.bias": torch.zeros(8)})),
            r"head.bias has shape \(8,\), expected \(9,\)",
        ),
        (
            lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-9]),
            r"model\.safetensors is not a complete safetensors file",
        ),
        (lambda f: (f / "model.safetensors").write_bytes(b""), "is not a complete safetensors file"),
        (lambda f: (f / "vocabulary.json").write_text("{}"), "not a vocabulary"),
    ],
)
def test_errors_name_the_file_that_cannot_be_read(folder, change, message):
    change(folder)
    with pytest.raises(ValueError, match=message):
        TrellisLM.from_pretrained(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_errors_name_missing_files(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=name.replace(".", r"\.")):
        TrellisLM.from_pretrained(folder)


def test_a_failed_save_leaves_the_old_model(folder, monkeypatch):
    old = TrellisLM.from_pretrained(folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(tensors, path):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trellisnet.models.pretrained.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        TrellisLM(9, 6, 10, num_layers=4).save_pretrained(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    ids = torch.randint(9, (2, 8))
    assert torch.equal(TrellisLM.from_pretrained(folder).log_prob(ids), old.log_prob(ids))


def test_a_later_model_replaces_all_files_of_an_earlier_one(tmp_path):
    TrellisLM(2, 6, 10, num_layers=3, vocabulary=Vocabulary(["a", "b"], "words")).save_pretrained(tmp_path)
    TrellisLM(2, 6, 10, num_layers=3).save_pretrained(tmp_path)
    assert TrellisLM.from_pretrained(tmp_path).vocabulary is None
    other = Vocabulary(["c", "d"], "words")
    assert TrellisLM.from_pretrained(tmp_path, vocabulary=other).vocabulary is other


def test_numbers_and_sequences_of_all_types_are_saved(tmp_path):
    lm = TrellisLM(np.int64(9), 6, torch.tensor(10), 3, dilation=range(1, 3), alpha=np.float64(0.5))
    lm.save_pretrained(tmp_path)
    assert TrellisLM.from_pretrained(tmp_path).config == lm.config
    cutoffs = [3]
    lm = TrellisLM(9, 6, 10, 3, head="cluster", cutoffs=cutoffs)
    cutoffs.append(4)
    assert lm.config["cutoffs"] == [3]


def test_errors_name_a_change_that_does_not_fit(folder):
    with pytest.raises(ValueError, match=r"with hidden_dropout changed does not describe a TrellisLM: hidden_dropout"):
        TrellisLM.from_pretrained(folder, hidden_dropout=3)
