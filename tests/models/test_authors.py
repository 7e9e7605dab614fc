import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from trellisnet import TrellisLM

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = ["lm-tied", "lm-mos-wnorm"]


def recorded(name):
    return json.loads((FIXTURES / f"{name}.json").read_text()), load_file(FIXTURES / f"{name}.safetensors")


def load(name, **options):
    settings, _ = recorded(name)
    return TrellisLM.from_authors(FIXTURES / f"{name}.pkl", settings["num_layers"], **options)


@pytest.mark.parametrize("name", NAMES)
def test_logits_and_auxiliary_logits_equal_the_authors(name):
    settings, run = recorded(name)
    lm = load(name, aux_every=settings["aux_every"])
    features = lm.features(run["ids"], aux=True)
    assert (features.output.transpose(0, 1) - run["raw_output"]).abs().max() <= 1e-6
    read = lm.head.log_prob if settings["experts"] else lm.head.logits
    assert (read(features.output).transpose(0, 1) - run["logits_or_logprobs"]).abs().max() <= 1e-5
    assert (read(features.aux).permute(2, 0, 1, 3) - run["aux_logits_or_logprobs"]).abs().max() <= 1e-5
    for ours, theirs in zip(features.state.last, (run["h_n"], run["c_n"]), strict=True):
        assert (ours - theirs).abs().max() <= 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_training_losses_equal_the_authors(name):
    settings, run = recorded(name)
    training = settings["training"]
    lm = load(name, aux_every=settings["aux_every"], aux_weight=training["aux_weight"]).train()
    optimiser = torch.optim.SGD(lm.parameters(), lr=training["lr"])
    for expected in run["losses"]:
        loss = lm(run["ids"], run["targets"]).loss
        assert abs(loss.item() / expected.item() - 1) <= 1e-4
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(lm.parameters(), training["clip"])
        optimiser.step()


@pytest.mark.parametrize("name", NAMES)
def test_the_sizes_come_from_the_file(name):
    settings, _ = recorded(name)
    lm = load(name)
    assert lm.config["hidden_size"] == settings["hidden_size"]
    assert lm.config["output_size"] == settings["output_size"]
    assert lm.config["head"] == ("mos" if settings["experts"] else "softmax")
    assert lm.head.weight is lm.embedding.weight
    assert not lm.training


def test_an_untied_model_keeps_both_embeddings(tmp_path):
    tensors = torch.load(FIXTURES / "lm-tied.pkl", weights_only=True)
    tensors["decoder.weight"] = tensors["decoder.weight"] + 1
    torch.save(tensors, tmp_path / "untied.pkl")
    lm = TrellisLM.from_authors(tmp_path / "untied.pkl", 6)
    assert torch.equal(lm.head.weight, lm.embedding.weight + 1)


def test_the_depth_defaults_to_the_papers_for_its_own_models(tmp_path):
    tensors = {
        "encoder.weight": torch.zeros(50, 200),
        "decoder.weight": torch.zeros(50, 200),
        "decoder.bias": torch.zeros(50),
        "tnet.full_conv.bias2": torch.zeros(4800),
        "tnet.full_conv.weight1": torch.zeros(4800, 200, 2),
        "tnet.full_conv.weight2": torch.zeros(4800, 1200, 2),
    }
    torch.save(tensors, tmp_path / "char.pkl")
    assert TrellisLM.from_authors(tmp_path / "char.pkl").net.num_layers == 125
    with pytest.raises(ValueError, match=r"num_layers is needed.*\(17, 6, 11\)"):
        TrellisLM.from_authors(FIXTURES / "lm-tied.pkl")


class Harmful:
    def __reduce__(self):
        return os.mkdir, (str(Harmful.target),)


def test_a_pickle_that_executes_code_is_refused_and_not_executed(tmp_path):
    Harmful.target = tmp_path / "harm"
    torch.save({"encoder.weight": torch.zeros(2, 2), "x": Harmful()}, tmp_path / "harmful.pkl")
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(Harmful()))
    for name in ("harmful.pkl", "plain.pkl"):
        with pytest.raises(ValueError, match=f"{name} is damaged or holds more than tensors"):
            TrellisLM.from_authors(tmp_path / name, 3)
    assert not Harmful.target.exists()


def change(name, edit):
    tensors = torch.load(FIXTURES / f"{name}.pkl", weights_only=True)
    edit(tensors)
    return tensors


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("lm-tied", lambda t: t.pop("encoder.weight"), "encoder.weight is missing"),
        ("lm-tied", lambda t: t.pop("decoder.bias"), "decoder.bias is missing"),
        ("lm-tied", lambda t: t.update(extra=torch.zeros(2)), "extra is not part of the model"),
        (
            "lm-tied",
            lambda t: t.update({"decoder.bias": torch.zeros(3)}),
            r"decoder.bias has shape \(3,\), expected \(17,\)",
        ),
        ("lm-tied", lambda t: t.update({"network.0.module.full_conv.bias2": torch.ones(44)}), "must be equal to tnet"),
        (
            "lm-tied",
            lambda t: [t.update({f"{n}.module.full_conv.bias2": torch.ones(43)}) for n in ("tnet", "network.0")],
            r"bias2 must be \(4 \* hidden",
        ),
        (
            "lm-mos-wnorm",
            lambda t: [t.pop(f"{n}.latent.bias") for n in ("mixsoft", "network.1")],
            "mixsoft.latent.bias is missing",
        ),
        ("lm-tied", lambda t: t.update(step=3), "must hold a state_dict"),
        ("lm-tied", lambda t: t.pop("decoder.weight"), "decoder.weight is missing"),
        ("lm-tied", lambda t: t.update({"decoder.weight": torch.zeros(17)}), r"decoder.weight has shape \(17,\)"),
        ("lm-tied", lambda t: t.update({"encoder.weight": torch.zeros(())}), r"encoder.weight has shape \(\)"),
        (
            "lm-tied",
            lambda t: [t.pop(f"{n}.module.full_conv.bias2") for n in ("tnet", "network.0")],
            "tnet's bias2 is missing",
        ),
        (
            "lm-tied",
            lambda t: [
                t.update({f"{n}.module.full_conv.weight2_raw": torch.ones(44, 4, 2)}) for n in ("tnet", "network.0")
            ],
            r"weight1 and weight2 must be .* got \(44, 6, 2\) and \(44, 4, 2\)",
        ),
        (
            "lm-mos-wnorm",
            lambda t: [t.pop(f"{n}.prior.weight") for n in ("mixsoft", "network.1")],
            "prior.weight is miss",
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(name, edit, message, tmp_path):
    torch.save(change(name, edit), tmp_path / "changed.pkl")
    with pytest.raises(ValueError, match=message):
        TrellisLM.from_authors(tmp_path / "changed.pkl", 4)


def test_errors_name_a_broken_file(tmp_path):
    for content in ((FIXTURES / "lm-tied.pkl").read_bytes()[:3000], b"", b"hello", b"\x80\x02."):
        (tmp_path / "short.pkl").write_bytes(content)
        with pytest.raises(ValueError, match=r"short\.pkl is damaged or holds more than tensors"):
            TrellisLM.from_authors(tmp_path / "short.pkl", 6)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.pkl"):
        TrellisLM.from_authors(tmp_path / "nowhere.pkl", 6)
