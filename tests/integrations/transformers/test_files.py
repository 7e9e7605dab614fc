"""One folder serves both libraries, and nothing is lost on the way there and back."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from reference import assert_close
from trellisnet import LanguageModel, TrellisClassifier, TrellisLM
from trellisnet.core.cells import TanhCell
from trellisnet.integrations.transformers import TrellisNetForCausalLM, TrellisNetTokenizer, register
from trellisnet.models.build import build_language_model

KINDS = {
    "trellis": {},
    "weight norm": {"weight_norm": True, "aux_every": 2, "hidden_dropout": 0.1, "memory": "recompute"},
    "groups": {"groups": [8, 8], "output_size": 8, "weight_norm": True},
    "untied": {"tied": False},
    "mixture": {"head": "mos", "experts": 3},
    "adaptive": {"head": "adaptive", "cutoffs": [4, 10]},
    "cluster": {"head": "cluster", "cutoffs": [4, 10]},
    "lstm": {"body": "lstm"},
    "ind-rnn": {"body": "ind-rnn", "batch_norm": True},
}


def change(folder, **entries):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_without_loss(kind, tmp_path):
    options = {"body": "trellis", **KINDS[kind]}
    lm = build_language_model(**options, vocab_size=20, embedding_size=8, hidden_size=16, num_layers=3).eval()
    lm.save_pretrained(tmp_path / "ours")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs")
    again = LanguageModel.from_pretrained(tmp_path / "theirs")
    assert type(again) is type(lm)
    assert again.config == lm.config == model.lm.config
    first, last = (load_file(tmp_path / each / "model.safetensors") for each in ("ours", "theirs"))
    assert first.keys() == last.keys()
    assert all(torch.equal(first[name], last[name]) and first[name].dtype == last[name].dtype for name in first)
    ids = torch.randint(20, (2, 9))
    assert torch.equal(again.log_prob(ids), lm.log_prob(ids))
    assert_close(model(ids).logits[..., :20], lm.log_prob(ids))  # other places in memory: sums in another order
    loaded = AutoConfig.from_pretrained(tmp_path / "theirs")
    assert {**loaded.to_dict(), "_name_or_path": ""} == {**model.config.to_dict(), "_name_or_path": ""}


def test_weights_in_several_files(model, tmp_path):
    model.save_pretrained(tmp_path, max_shard_size="5KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    ids = torch.randint(14, (2, 9))
    assert torch.equal(TrellisLM.from_pretrained(tmp_path).log_prob(ids), model.lm.log_prob(ids))
    shards[-1].unlink()
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        TrellisLM.from_pretrained(tmp_path)


def test_a_model_in_memory_shares_its_weights(lm, model):
    assert model.lm is lm
    assert {id(each) for each in model.parameters()} == {id(each) for each in lm.parameters()}
    model.train()
    assert lm.training
    with pytest.raises(TypeError, match="lm must be a LanguageModel, got Linear"):
        TrellisNetForCausalLM.from_lm(torch.nn.Linear(2, 2))


def test_the_folder_of_a_model_with_a_tokenizer(model, lm, tokenizer, tmp_path):
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = TrellisLM.from_pretrained(tmp_path)
    assert loaded.vocabulary == lm.vocabulary
    assert loaded.generate("abc", 5) == lm.generate("abc", 5)
    assert isinstance(AutoTokenizer.from_pretrained(tmp_path), TrellisNetTokenizer)


def test_dtype_and_arguments_can_be_changed(lm, tmp_path):
    lm.save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, hidden_dropout=0.3)
    assert model.dtype == torch.float32
    assert model.lm.net.hidden_dropout == model.config.arguments["hidden_dropout"] == 0.3
    ids = torch.randint(14, (2, 5))
    assert torch.allclose(model(ids).logits[..., :14].double(), lm.log_prob(ids), atol=1e-4)  # single precision


def test_the_pad_token_needs_no_vector(model, tokenizer):
    assert model.config.pad_token_id == tokenizer.pad_token_id == model.generation_config.pad_token_id == 14
    assert model.config.vocab_size == len(tokenizer) == 15
    assert model.resize_token_embeddings(len(tokenizer)) is model.get_input_embeddings() is model.lm.embedding
    with pytest.raises(ValueError, match=r"new_num_tokens must be 15 \(or 14, without the pad token\)"):
        model.resize_token_embeddings(16)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (3, r"has format_version 3, this version of trellisnet reads 1 to 2$"),
        (1, r"has format_version 1, and transformers reads 2 only: load the folder with TrellisLM.from_pretrained and"),
        (None, r"has format_version None, this version of trellisnet reads 1 to 2$"),
    ],
)
def test_another_version_is_one_sentence(lm, tmp_path, version, message):
    lm.save_pretrained(tmp_path)
    change(tmp_path, format_version=version)
    with pytest.raises(ValueError, match=message) as error:
        AutoModelForCausalLM.from_pretrained(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_weights_that_are_missing(lm, tmp_path):
    lm.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["head.bias"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"does not fit the model: head\.bias is missing"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_folders_that_are_no_language_model(lm, tmp_path):
    TrellisClassifier(3, 8, 2, num_classes=4).save_pretrained(tmp_path)
    change(tmp_path, model_type="trellisnet")
    with pytest.raises(ValueError, match="describes a 'TrellisClassifier', expected 'LanguageModel' or 'TrellisLM'"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_a_cell_of_the_users_own_is_passed_again(tmp_path):
    class OwnCell(TanhCell):
        pass

    lm = TrellisLM(9, 4, 8, 2, cell=OwnCell()).eval()
    lm.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"built with a cell of its own: pass cell=.*OwnCell\(\)"):
        AutoModelForCausalLM.from_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, cell=OwnCell())
    ids = torch.randint(9, (2, 5))
    assert_close(model(ids).logits[..., :9], lm.log_prob(ids))
    model.save_pretrained(tmp_path)
    assert_close(TrellisLM.from_pretrained(tmp_path, cell=OwnCell()).log_prob(ids), lm.log_prob(ids))


def test_the_model_card(model, tmp_path):
    model.save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert f"with {model.lm.num_parameters:,} parameters and a vocabulary of\n14 tokens" in card
    assert f"the last {model.lm.net.receptive_field} tokens" in card
    assert "| `dilation` | `[1, 2]` |" in card
    (tmp_path / "README.md").write_text("my own")
    model.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "my own"


def test_auto_map_loads_without_registration(model, tokenizer, tmp_path, monkeypatch):
    """As in a program that never calls `register`: by the code in the folder."""
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "code"))
    for mapping in (
        transformers.models.auto.configuration_auto.CONFIG_MAPPING,
        transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING,
        transformers.models.auto.tokenization_auto.TOKENIZER_MAPPING,
    ):
        monkeypatch.setattr(mapping, "_extra_content", {})
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "model", trust_remote_code=False)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model", trust_remote_code=True)
    assert type(loaded) is TrellisNetForCausalLM
    assert type(AutoTokenizer.from_pretrained(tmp_path / "model", trust_remote_code=True)) is TrellisNetTokenizer
    loaded.save_pretrained(tmp_path / "again")
    assert loaded.config.auto_map == model.config.auto_map
    code = {each.name for each in (tmp_path / "again").glob("*.py")}
    assert code == {"modeling_trellisnet.py"}


def test_importing_it_is_light():
    code = "import sys, trellisnet.integrations.transformers; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def test_a_missing_or_old_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(__version__="4.57.1"))
    with pytest.raises(ImportError, match=r"the extra 'hf' needs transformers 5 or newer, got 4\.57\.1"):
        register()
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="needs the transformers package, of the extra 'hf'"):
        register()
