"""`Trainer`, the loss, and gradient checkpointing."""

import pytest
import torch
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

from reference import assert_close
from trellisnet import TrellisLM
from trellisnet.integrations.transformers import TrellisNetForCausalLM
from trellisnet.models.build import build_language_model

OPTIONS = {"aux_every": 2, "aux_weight": 0.1, "alpha": 0.5, "beta": 0.5}


@pytest.fixture
def trained():
    return TrellisNetForCausalLM.from_lm(TrellisLM(14, 12, 24, 6, **OPTIONS).train())


def without_temporal(model):
    """The temporal regulariser is a mean over pairs of steps, not over tokens, so that it does not add up."""
    model.lm.options.beta = 0.0
    return model


def test_the_loss_is_that_of_the_package(trained):
    ids = torch.randint(14, (3, 8))
    out = trained(ids, labels=ids)
    expected = trained.lm(ids[:, :-1], ids[:, 1:])
    assert set(expected.parts) == {"main", "aux", "activation", "temporal"}
    assert_close(out.loss, expected.loss)
    assert out.logits is None
    trained.eval()
    out = trained(ids, labels=ids)
    assert_close(out.loss, trained.lm(ids[:, :-1], ids[:, 1:]).loss)
    assert_close(out.logits[..., :14], trained.lm.log_prob(ids))
    assert out.past_key_values is None


@pytest.mark.parametrize("left", [True, False])
def test_padding_changes_no_loss(trained, left):
    without_temporal(trained)
    short, long = torch.randint(14, (1, 5)), torch.randint(14, (1, 9))
    pad = torch.full((1, 4), 14)
    ids = torch.cat([torch.cat([pad, short] if left else [short, pad], 1), long])
    alone = sum(trained(each, labels=each, num_items_in_batch=12).loss for each in (short, long))
    together = trained(ids, labels=ids.masked_fill(ids == 14, -100)).loss
    assert_close(together, alone)
    assert_close(*(torch.autograd.grad(each, list(trained.parameters())) for each in (together, alone)))


def test_labels_that_do_not_count(trained):
    trained.eval()
    ids = torch.randint(14, (2, 6))
    labels = ids.clone()
    labels[:, :3] = -100
    nll = -trained.lm.log_prob(ids)[:, 2:-1].gather(2, ids[:, 3:, None])
    assert_close(trained(ids, labels=labels).loss, nll.mean())
    with pytest.raises(ValueError, match=r"labels must have the shape of input_ids, \(2, 6\), got \(2, 5\)"):
        trained(ids, labels=labels[:, 1:])
    with pytest.raises(ValueError, match=r"labels must lie in 0 \.\. 13, got [23]\d"):
        trained(ids, labels=ids + 20)


def test_checkpointing_is_recomputing(trained):
    ids = torch.randint(14, (2, 9))

    def gradients():
        return torch.autograd.grad(trained(ids, labels=ids).loss, list(trained.parameters()))

    expected = gradients()
    assert not trained.is_activation_checkpointing
    trained.activation_checkpointing_enable()
    assert trained.net.memory == "recompute"
    assert trained.is_activation_checkpointing
    assert_close(gradients(), expected)
    trained.activation_checkpointing_disable()
    assert trained.net.memory == "store"
    with pytest.raises(ValueError, match="every_n_layers"):
        trained.activation_checkpointing_enable(every_n_layers=2)
    lstm = build_language_model("lstm", vocab_size=9, embedding_size=4, hidden_size=4)
    with pytest.raises(ValueError, match="needs a body with the option memory, got LstmBody"):
        TrellisNetForCausalLM.from_lm(lstm).activation_checkpointing_enable()


def trainer(model, tokenizer, folder, **options):
    texts = ["abcabcabc", "lkjlkjlkjlkj", "ab ab ab", "a"] * 4
    arguments = TrainingArguments(
        str(folder),
        num_train_epochs=6,
        learning_rate=0.02,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        **options,
    )
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    data = [tokenizer(text) for text in texts]
    return Trainer(model, arguments, collator, data, eval_dataset=data[:4], processing_class=tokenizer)


def test_trainer(lm, model, tokenizer, tmp_path):
    """Batches of unequal lengths, with gradients accumulated, checkpoints, evaluation and resumption."""
    options = {"per_device_train_batch_size": 4, "save_steps": 12, "activation_checkpointing": True}
    training = trainer(model, tokenizer, tmp_path, **options)
    before = training.evaluate()["eval_loss"]
    training.train()
    after = training.evaluate()["eval_loss"]
    assert after < before / 2
    assert model.net.memory == "recompute"
    loaded = TrellisLM.from_pretrained(tmp_path / "checkpoint-24")
    assert loaded.vocabulary == lm.vocabulary
    ids = torch.randint(14, (2, 9))
    assert_close(loaded.log_prob(ids), lm.eval().log_prob(ids))
    expected = {name: each.clone() for name, each in model.state_dict().items()}
    resumed = trainer(TrellisNetForCausalLM.from_pretrained(tmp_path / "checkpoint-12"), tokenizer, tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
    for name, each in resumed.model.state_dict().items():
        assert_close(each, expected[name])


def test_accumulated_gradients_are_those_of_the_whole_batch(tokenizer, tmp_path):
    weights = []
    for size, steps in ((8, 1), (2, 4)):
        torch.manual_seed(1)
        model = TrellisNetForCausalLM.from_lm(TrellisLM(14, 12, 24, 4))
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps, "max_steps": 3}
        trainer(model, tokenizer, tmp_path, save_strategy="no", optim="sgd", **options).train()
        weights.append(model.net.kernel.weight_hidden.detach())
    assert_close(weights[0], weights[1])
