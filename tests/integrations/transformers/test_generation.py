"""`generate` with a cache gives what it gives without, and a row of a padded batch what it gives alone."""

import copy

import pytest
import torch
from transformers import DynamicCache, TextIteratorStreamer, pipeline

from reference import assert_close
from trellisnet import LanguageModel
from trellisnet.integrations.transformers import StateCache, TrellisNetForCausalLM
from trellisnet.models.bodies import BODIES
from trellisnet.models.build import build_language_model

PROMPTS = ["abc", "defghij kl\na", "l", "kkkkkkkk abc"]
MODES = {
    "greedy": {"do_sample": False},
    "beams": {"do_sample": False, "num_beams": 3, "length_penalty": 0.0},
    "penalty": {"do_sample": False, "repetition_penalty": 1.7},
    "ended": {"do_sample": False, "eos_token_id": [2, 5, 7]},
}


def padded(tokenizer, side, prompts=PROMPTS):
    return tokenizer(prompts, return_tensors="pt", padding=True, padding_side=side)


def continued(model, tokenizer, batch, **options):
    ids = model.generate(**batch, max_new_tokens=12, **options)
    return tokenizer.batch_decode(ids, skip_special_tokens=True)


def test_greedy_is_that_of_the_package(model, lm, tokenizer):
    assert continued(model, tokenizer, padded(tokenizer, "left"), do_sample=False) == lm.generate(PROMPTS, 12)


def test_beams_are_those_of_the_package(model, lm, tokenizer):
    expected = lm.generate(PROMPTS, 12, beams=3)
    assert continued(model, tokenizer, padded(tokenizer, "left"), **MODES["beams"]) == expected


@pytest.mark.parametrize(
    ("mode", "use_cache"), [*((mode, True) for mode in MODES), ("greedy", False), ("beams", False)]
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_batch_gives_what_each_row_gives_alone(model, tokenizer, mode, side, use_cache):
    alone = [continued(model, tokenizer, padded(tokenizer, side, [each]), **MODES[mode])[0] for each in PROMPTS]
    assert continued(model, tokenizer, padded(tokenizer, side), use_cache=use_cache, **MODES[mode]) == alone
    assert mode != "ended" or len({len(text) - len(prompt) for text, prompt in zip(alone, PROMPTS, strict=True)}) > 1


@pytest.mark.parametrize("side", ["left", "right"])
def test_sampling_with_a_cache_is_sampling_without(model, tokenizer, side):
    texts = []
    for use_cache in (True, False):
        torch.manual_seed(3)
        batch = padded(tokenizer, side)
        texts.append(continued(model, tokenizer, batch, do_sample=True, top_k=5, top_p=0.9, use_cache=use_cache))
    assert texts[0] == texts[1]
    assert texts[0] != continued(model, tokenizer, batch, do_sample=False)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_prompt_in_chunks_gives_the_same(model, tokenizer, side):
    """Chunks of padding alone included, before and after a row's tokens."""
    batch = padded(tokenizer, side)
    whole = continued(model, tokenizer, batch, do_sample=False)
    for size in (1, 3, 5):
        assert continued(model, tokenizer, batch, do_sample=False, prefill_chunk_size=size) == whole


@pytest.mark.parametrize("name", BODIES)
def test_padding_changes_no_logits_on_any_body(name):
    lm = build_language_model(name, vocab_size=9, embedding_size=8, hidden_size=8, num_layers=2, tied=False).eval()
    model, pad = TrellisNetForCausalLM.from_lm(lm), 9
    rows = [[1, 2, 3, 4], [5], [6, 7]]
    batch = torch.tensor([[1, pad, 2, 3, pad, 4], [pad, pad, pad, pad, 5, pad], [6, 7, pad, pad, pad, pad]])
    with torch.no_grad():
        logits = model(batch).logits
        first = model(batch[:, :3])  # then in two chunks; the second row begins in the second chunk
        second = model(batch[:, 3:], past_key_values=first.past_key_values).logits
        for row, ids in enumerate(rows):
            expected = lm.log_prob(torch.tensor([ids]))[0]
            assert_close(logits[row, batch[row] != pad, :pad], expected)
            assert_close(torch.cat([first.logits, second], 1)[row, batch[row] != pad, :pad], expected)
            assert_close(logits[row, -1, :pad], expected[-1])  # padding repeats the prediction before it
            assert_close(second[row, -1, :pad], expected[-1])
    assert (logits[..., pad] == -torch.inf).all()


def test_a_row_of_padding_alone_is_no_obstacle(model):
    ids = torch.tensor([[14, 14], [1, 2]])
    with torch.no_grad():
        out = model(ids)
        out = model(torch.tensor([[3, 4], [14, 3]]), past_key_values=out.past_key_values)
        assert_close(out.logits[0, :, :14], model.lm.log_prob(torch.tensor([[3, 4]]))[0])
        assert_close(out.logits[1, -1, :14], model.lm.log_prob(torch.tensor([[1, 2, 3]]))[0, -1])


def test_a_text_continues_twice_from_a_copy_of_the_cache(model, tokenizer):
    ids = tokenizer("abcabc", return_tensors="pt").input_ids
    with torch.no_grad():
        cache = model(ids).past_key_values
        assert isinstance(cache, StateCache)
        assert cache.get_seq_length() == 6
        for more in ([1, 2], [3]):
            text = torch.cat([ids, torch.tensor([more])], 1)
            expected = model.generate(text, max_new_tokens=5, do_sample=False)
            again = model.generate(text, max_new_tokens=5, do_sample=False, past_key_values=copy.deepcopy(cache))
            assert again.tolist() == expected.tolist()


def test_the_cache_does_not_grow(model):
    ids = torch.randint(14, (2, 40))
    with torch.no_grad():
        short, long = (model(ids[:, :n]).past_key_values.layer.memory.state for n in (20, 40))
    assert short.h.shape == long.h.shape


def test_rows_of_the_cache_are_selected_and_repeated(model):
    ids = torch.randint(14, (3, 7))
    with torch.no_grad():
        expected = model(torch.cat([ids, ids[:, :1]], 1)).logits[:, -1:].exp()
        cache = model(ids).past_key_values
        cache.batch_select_indices(torch.tensor([2, 0]))
        cache.batch_repeat_interleave(2)
        rows = torch.tensor([2, 2, 0, 0])
        assert_close(model(ids[rows, :1], past_key_values=cache).logits.exp(), expected[rows])
        cache.reset()
        assert cache.get_seq_length() == 0
        assert torch.equal(model(ids, past_key_values=cache).logits, model(ids).logits)


def test_logits_to_keep(model):
    ids = torch.randint(14, (2, 6))
    with torch.no_grad():
        logits = model(ids).logits
        assert_close(model(ids, logits_to_keep=2).logits.exp(), logits[:, -2:].exp())
        assert_close(model(ids, logits_to_keep=torch.tensor([0, 3])).logits.exp(), logits[:, [0, 3]].exp())
        assert torch.equal(model(ids, return_dict=False)[0], logits)


def test_pipeline_and_streamer(model, lm, tokenizer):
    expected = lm.generate(PROMPTS, 6)
    writer = pipeline("text-generation", model=model, tokenizer=tokenizer, device="cpu")
    answers = writer(PROMPTS, max_new_tokens=6, do_sample=False, batch_size=4)
    assert [each[0]["generated_text"] for each in answers] == expected
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True)
    model.generate(**tokenizer(PROMPTS[0], return_tensors="pt"), max_new_tokens=6, do_sample=False, streamer=streamer)
    assert PROMPTS[0] + "".join(streamer) == expected[0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"cache_implementation": "static"}, ValueError, "cache_implementation must be None"),
        (
            {"past_key_values": DynamicCache()},
            TypeError,
            "past_key_values must be a StateCache or None, got DynamicCache",
        ),
        (
            {"attention_mask": torch.tensor([[0, 1]])},
            ValueError,
            r"attention_mask must be \(1, 3\) as input_ids, or longer",
        ),
        ({"prompt_lookup_num_tokens": 2}, ValueError, "not supported with stateful models"),
        ({"temprature": 2}, ValueError, "temprature"),
    ],
)
def test_what_cannot_be_is_refused(model, options, error, message):
    with pytest.raises(error, match=message):
        model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=3, **options)


def test_ids_out_of_range_are_refused(model):
    with pytest.raises(ValueError, match=r"input_ids must lie in 0 \.\. 13, got 15"):
        model(torch.tensor([[1, 15]]))


def test_a_body_without_lengths_is_told_from_a_broken_cache():
    class Mean(torch.nn.Module):
        input_size = output_size = 4

        def forward(self, x, state=None):
            return x.cumsum(0), x.sum(0, keepdim=True)

    model = TrellisNetForCausalLM.from_lm(LanguageModel(Mean(), vocab_size=5).eval())
    with pytest.raises(ValueError, match="sequences of unequal lengths need a body with `lengths`"):
        model.generate(torch.tensor([[1, 2], [5, 1]]), max_new_tokens=3)
