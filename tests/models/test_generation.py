import itertools

import pytest
import torch

from reference import assert_close
from trellisnet import TrellisLM, Vocabulary
from trellisnet.models.generation import Sampling, Seen

VOCAB = 11
PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [8], [3, 3, 9]]


@pytest.fixture(params=[{}, {"head": "mos", "weight_norm": True}, {"cell": "gru", "kernel_size": 3}])
def lm(request):
    lm = TrellisLM(VOCAB, 6, 10, num_layers=5, hidden_dropout=0.3, output_dropout=0.3, **request.param)
    for parameter in lm.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return lm


def continue_by_full_runs(lm, prompt, steps, sampling, uniform, stop=()):
    """Read the whole text again for every token, and choose by the definition of each option."""
    tokens = list(prompt)
    lm.eval()
    for step in range(steps):
        log_prob = lm.log_prob(torch.tensor([tokens]))[0, -1].detach()
        penalise(log_prob, set(tokens), sampling.repetition_penalty)
        tokens.append(choose(log_prob, sampling, uniform[step]))
        if tokens[-1] in stop:
            break
    lm.train()
    return tokens


def penalise(log_prob, tokens, penalty):
    mean = log_prob.mean().item()
    for token in tokens:
        score = log_prob[token].item() - mean
        log_prob[token] = mean + (score / penalty if score > 0 else score * penalty)


def choose(log_prob, sampling, number):
    if sampling.greedy:
        return int(log_prob.argmax())
    p = (log_prob / (sampling.temperature or 1)).softmax(0).tolist()
    order = sorted(range(VOCAB), key=lambda token: -p[token])[: sampling.top_k or VOCAB]
    total, kept = sum(p[token] for token in order), []
    for token in order:
        if sampling.top_p is not None and sum(p[other] / total for other in kept) >= sampling.top_p:
            break
        kept.append(token)
    number *= sum(p[token] for token in kept)
    for token in sorted(kept):
        number -= p[token]
        if number < 0:
            return token
    raise AssertionError


OPTIONS = [
    {},
    {"repetition_penalty": 1.7},
    {"temperature": 0.7, "seed": 5},
    {"top_k": 3, "seed": 5},
    {"top_p": 0.6, "seed": 6},
    {"temperature": 2.0, "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.3, "seed": 7},
    {"seed": 8},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("stop", [(), (2, 5)])
def test_generation_equals_choosing_from_full_runs(lm, options, stop):
    """Prompts of different lengths in one batch, against one text at a time without a state."""
    steps = 12
    uniform = torch.zeros(steps, len(PROMPTS))
    if "seed" in options:
        generator = torch.Generator().manual_seed(options["seed"])
        uniform = torch.stack([torch.rand(len(PROMPTS), generator=generator) for _ in range(steps)])
    sampling = Sampling(**options)
    expected = [
        continue_by_full_runs(lm, prompt, steps, sampling, uniform[:, i].tolist(), stop)
        for i, prompt in enumerate(PROMPTS)
    ]
    assert lm.generate(PROMPTS, steps, stop=stop, **options) == expected
    assert lm.training


def test_a_tensor_gives_a_tensor(lm):
    ids = torch.tensor(PROMPTS[0]).view(1, -1).repeat(2, 1)
    out = lm.generate(ids, max_new_tokens=4)
    assert out.shape == (2, 11)
    assert torch.equal(out[:, :7], ids)
    assert torch.equal(out[0], out[1])
    stop = int(out[0, 8])
    ended = lm.generate(ids, max_new_tokens=4, stop=stop)
    assert int(ended[0, -1]) == stop
    assert ended.shape[1] <= 9


def test_the_stream_gives_the_tokens_of_generate(lm):
    options = {"temperature": 1.5, "seed": 3, "stop": [4]}
    stream = lm.stream(PROMPTS, 10, **options)
    texts = [list(prompt) for prompt in PROMPTS]
    for tokens in stream:
        for text, token in zip(texts, tokens, strict=True):
            text.extend([] if token is None else [token])
    assert texts == lm.generate(PROMPTS, 10, **options)


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0, "seed": 3}, {"beams": 3}], ids=str)
def test_generation_ignores_the_default_device(lm, options):
    options = {**options, "repetition_penalty": 1.5, "stop": [3]}
    expected = lm.generate(PROMPTS, 6, **options)
    with torch.device("meta"):  # tensors on it have no values
        assert lm.generate(PROMPTS, 6, **options) == expected


def test_a_stream_keeps_the_weights_it_started_with_under_weight_norm():
    lm = TrellisLM(VOCAB, 6, 10, num_layers=5, weight_norm=True)
    expected = lm.generate([[1]], 6)
    stream = lm.stream([[1]], 6)
    tokens = [1, *next(stream)]
    with torch.no_grad():
        lm.net.kernel.parametrizations.weight_hidden.original0.mul_(-3)
    assert tokens + [token for (token,) in stream] == expected[0]


def test_the_seed_determines_the_tokens(lm):
    draw = [lm.generate(PROMPTS, 20, seed=seed) for seed in (1, 1, 2)]
    assert draw[0] == draw[1] != draw[2]
    torch.manual_seed(0)
    first = lm.generate(PROMPTS, 20, temperature=1.0)
    assert first != lm.generate(PROMPTS, 20, temperature=1.0)
    torch.manual_seed(0)
    assert first == lm.generate(PROMPTS, 20, temperature=1.0)


def slow_beam_search(lm, prompt, steps, beams, length_penalty, penalty, stop):
    """The definition: one text at a time, the whole text read in every step."""

    def score(hypothesis):
        return hypothesis[1] / len(hypothesis[0]) ** length_penalty

    live, finished = [((), 0.0)], []
    for _ in range(steps):
        options = []
        for tokens, total in live:
            log_prob = lm.log_prob(torch.tensor([[*prompt, *tokens]]))[0, -1].detach()
            penalise(log_prob, {*prompt, *tokens}, penalty)
            options += [((*tokens, token), total + float(log_prob[token])) for token in range(VOCAB)]
        options.sort(key=lambda option: -option[1])
        finished += [option for option in options[:beams] if option[0][-1] in stop]
        live = [option for option in options if option[0][-1] not in stop][:beams]
    return [*prompt, *max(finished + live, key=score)[0]]


@pytest.mark.parametrize("beams", [1, 2, 5, 30])
@pytest.mark.parametrize(("length_penalty", "penalty", "stop"), [(0.0, 1.0, ()), (1.0, 1.0, (2, 7)), (0.6, 1.5, (4,))])
def test_beam_search_equals_its_definition(lm, beams, length_penalty, penalty, stop):
    lm.eval()
    expected = [slow_beam_search(lm, prompt, 5, beams, length_penalty, penalty, stop) for prompt in PROMPTS]
    got = lm.generate(PROMPTS, 5, beams=beams, length_penalty=length_penalty, repetition_penalty=penalty, stop=stop)
    assert got == expected


def test_a_wide_beam_finds_the_most_probable_text():
    lm = TrellisLM(4, 6, 10, num_layers=3).eval()
    texts = torch.tensor([[0, *tokens] for tokens in itertools.product(range(4), repeat=3)])
    totals = lm.log_prob(texts[:, :-1]).gather(2, texts[:, 1:, None]).sum((1, 2))
    assert lm.generate([[0]], 3, beams=64) == [texts[totals.argmax()].tolist()]


def test_text_prompts_give_text():
    vocabulary = Vocabulary(list("abcdefghijk"), "characters")
    lm = TrellisLM(VOCAB, 6, 10, num_layers=3, vocabulary=vocabulary)
    ids = lm.generate([[0, 1]], 5)[0]
    assert lm.generate("ab", 5) == vocabulary.decode(ids)
    assert lm.generate(["ab", "c"], 5)[0] == vocabulary.decode(ids)
    assert "ab" + "".join(lm.stream_text("ab", 5)) == lm.generate("ab", 5)
    last = vocabulary.tokens[ids[2]]
    assert lm.generate("ab", 5, stop=last) == "ab" + last
    words = TrellisLM(3, 6, 10, num_layers=3, vocabulary=Vocabulary(["a", "rose", "is"], "words"))
    assert "a rose" + "".join(words.stream_text("a rose", 4)) == words.generate("a rose", 4)


@pytest.mark.parametrize(
    ("prompts", "options", "error", "message"),
    [
        ([[1, 11]], {}, ValueError, r"prompts\[0\] must lie in 0 .. 10, got 11"),
        ([[1], []], {}, ValueError, r"prompts\[1\] must not be empty"),
        ([], {}, ValueError, "prompts must not be empty"),
        (torch.zeros(1, 0, dtype=torch.int64), {}, ValueError, "not empty"),
        ([[1.5]], {}, TypeError, r"prompts\[0\] must be text or a sequence of integers, got \[1.5\]"),
        ([["a"]], {}, TypeError, r"prompts\[0\] must be text or a sequence of integers"),
        ([[10**30]], {}, TypeError, r"prompts\[0\] must be text or a sequence of integers"),
        ([torch.tensor(3)], {}, TypeError, r"prompts\[0\] must be text or a sequence of integers"),
        (7, {}, TypeError, "prompts must be text, .* got int"),
        ([7], {}, TypeError, r"prompts\[0\] must be text or a sequence of integers, got 7"),
        ("text", {}, ValueError, "text needs a model with a vocabulary"),
        ([[1]], {"max_new_tokens": 0}, ValueError, "max_new_tokens must be an integer >= 1, got 0"),
        ([[1]], {"temperature": 0}, ValueError, "temperature must be a number > 0"),
        ([[1]], {"top_k": 0}, ValueError, "top_k"),
        ([[1]], {"top_p": 1.5}, ValueError, r"top_p must lie in \(0, 1\], got 1.5"),
        ([[1]], {"repetition_penalty": 0}, ValueError, "repetition_penalty"),
        ([[1]], {"beams": 0}, ValueError, "beams"),
        ([[1]], {"beams": 2, "seed": 1}, ValueError, "beams search and draw nothing"),
        ([[1]], {"length_penalty": 1.0}, ValueError, "length_penalty belongs to a beam search"),
        ([[1]], {"temperature": "1"}, TypeError, "temperature must be a number"),
        ([[1]], {"seed": 1.5}, TypeError, "seed must be an integer >= 0, got 1.5"),
        ([[1]], {"beams": 2, "length_penalty": -1.0}, ValueError, "length_penalty must be a number >= 0"),
        ([[1]], {"stop": None}, ValueError, "stop must be words of the vocabulary or numbers below 11, got None"),
        ([[1]], {"stop": 11}, ValueError, "stop must be words of the vocabulary or numbers below 11, got 11"),
    ],
)
def test_errors_name_bad_input(prompts, options, error, message):
    lm = TrellisLM(VOCAB, 6, 10, num_layers=3)
    with pytest.raises(error, match=message):
        lm.generate(prompts, **{"max_new_tokens": 3, **options})


def test_a_token_of_probability_zero_is_never_sampled():
    log_prob = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).log_softmax(1).expand(1000, -1)
    uniform = torch.linspace(0, 1, 1001)[:-1]
    drawn = Sampling(temperature=1.0).choose(log_prob, uniform)
    assert set(drawn.tolist()) == {1, 3}
    assert_close(drawn.eq(1).double().mean(), torch.tensor(0.5), 0.01)


def test_nan_weights_are_an_error():
    lm = TrellisLM(VOCAB, 6, 10, num_layers=3)
    with torch.no_grad():
        lm.head.bias[3] = torch.nan
    for options in ({}, {"seed": 1}, {"beams": 2}):
        with pytest.raises(ValueError, match="log-probabilities are not finite"):
            lm.generate([[1, 2]], 3, **options)


def test_a_tiny_temperature_is_greedy():
    lm = TrellisLM(VOCAB, 6, 10, num_layers=3)
    assert lm.generate([[1, 2]], 5, temperature=1e-300) == lm.generate([[1, 2]], 5)


def test_greedy_generation_draws_no_random_numbers():
    lm = TrellisLM(VOCAB, 6, 10, num_layers=3, weight_norm=True)
    before = torch.get_rng_state()
    lm.generate([[1, 2]], 5)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_repetition_penalty_lowers_the_most_probable_token():
    log_prob = torch.tensor([[10.0, 0.0, 0.0, 0.0]]).log_softmax(1)
    lowered = Seen([[0]], 4, 8.0).penalise(log_prob)
    assert_close(lowered[0], torch.tensor([7.5 / 8 + 2.5, 0.0, 0.0, 0.0]) + log_prob[0, 1])


def test_the_repetition_penalty_can_be_any_number():
    lm = TrellisLM(VOCAB, 6, 10, num_layers=3)
    for options in ({}, {"beams": 2}):
        large = lm.generate([[1, 2]], 5, repetition_penalty=10**100, **options)
        assert large == lm.generate([[1, 2]], 5, repetition_penalty=1e100, **options)
        with pytest.raises(ValueError, match="repetition_penalty must be a number >= 0, got inf"):
            lm.generate([[1, 2]], 5, repetition_penalty=10**5000, **options)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_ids_can_have_any_integer_type(dtype):
    lm = TrellisLM(300, 6, 10, num_layers=3)
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(lm.generate(ids.to(dtype), 3), lm.generate(ids, 3))
    assert_close(lm(ids.to(dtype), ids.to(dtype)).loss, lm(ids, ids).loss)
    assert lm.generate([[1]], 3, stop=torch.tensor([5, 6])) == lm.generate([[1]], 3, stop=[5, 6])
