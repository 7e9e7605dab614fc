import math

import numpy as np
import pytest
import torch

from reference import assert_close
from trellisnet import (
    ContinuousCache,
    DynamicEvaluation,
    LanguageModel,
    TrellisLM,
    Vocabulary,
    gradient_statistics,
)
from trellisnet.models.bodies import BODIES, make_body

VOCAB = 9


@pytest.fixture(params=["softmax", "cluster"])
def lm(request):
    return TrellisLM(VOCAB, 6, 10, num_layers=5, head=request.param, hidden_dropout=0.4, embedding_dropout=0.4)


def read(lm, ids):
    """Log-probabilities of every token but the first, from one run without dropout."""
    was = lm.training
    log_prob = lm.eval().log_prob(ids[:, :-1]).gather(2, ids[:, 1:, None]).squeeze(2).detach()
    lm.train(was)
    return log_prob


def test_arrays_of_a_dataset_can_be_scored(lm):
    """They are read-only arrays of small integers."""
    ids = torch.randint(VOCAB, (1, 24))
    array = ids[0].numpy().astype(np.uint16)
    array.setflags(write=False)
    assert_close(lm.score(array).log_prob, lm.score(ids).log_prob, 0)


@pytest.mark.parametrize("window", [1, 4, 7, 100])
def test_the_window_does_not_change_the_score(lm, window):
    ids = torch.randint(VOCAB, (2, 24))
    score = lm.score(ids, window=window)
    expected = read(lm, ids)
    assert_close(score.log_prob, expected, 1e-12)
    assert score.perplexity == pytest.approx(math.exp(-expected.mean()))
    assert score.bits == pytest.approx(-expected.mean() / math.log(2))
    assert score.protocol == "exact streaming"
    assert lm.training


def test_text_and_sequences_of_ids_have_equal_scores():
    lm = TrellisLM(3, 6, 10, num_layers=5, vocabulary=Vocabulary(["a", "rose", "is"], "words"))
    expected = read(lm, torch.tensor([[0, 1, 2, 0, 1]]))
    assert_close(lm.score("a rose is a rose").log_prob, expected, 1e-12)
    assert_close(lm.score([0, 1, 2, 0, 1]).log_prob, expected, 1e-12)
    assert_close(lm.score(torch.tensor([0, 1, 2, 0, 1])).log_prob, expected, 1e-12)
    assert lm.score("a rose").log_prob.shape == (1, 1)


def slow_cache(lm, ids, cache):
    """Grave et al., equations 2 to 4, one token at a time, with the probabilities of all tokens."""
    lm.eval()
    result = []
    for row in ids.tolist():
        features = lm.features(torch.tensor([row[:-1]])).output[:, 0]
        model = lm.log_prob(torch.tensor([row[:-1]]))[0].exp()
        for t in range(len(row) - 1):
            p = model[t]
            known = range(max(0, t - cache.size), t)
            if known:
                weights = torch.stack([(cache.theta * features[t] @ features[i]).exp() for i in known])
                cached = torch.zeros(VOCAB)
                for i, weight in zip(known, weights / weights.sum(), strict=True):
                    cached[row[i + 1]] += weight
                p = (1 - cache.share) * p + cache.share * cached
            assert abs(p.sum().item() - 1) < 1e-12
            result.append(p[row[t + 1]].log())
    return torch.stack(result).view(len(ids), -1).detach()


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("window", [1, 3, 50])
def test_the_cache_equals_its_definition(lm, size, window):
    ids = torch.randint(VOCAB, (2, 17))
    cache = ContinuousCache(size, theta=0.8, share=0.3)
    score = lm.score(ids, window=window, cache=cache)
    assert_close(score.log_prob, slow_cache(lm, ids, cache))
    assert score.protocol == f"exact streaming, continuous cache (size {size}, theta 0.8, share 0.3)"


@pytest.mark.parametrize("body", BODIES)
def test_any_body_can_be_adapted(body):
    if body == "xlstm":
        pytest.importorskip("xlstm")
    options = {"trellis": {"num_layers": 3}, "attention-trellis": {"num_layers": 3}}.get(body, {})
    lm = LanguageModel(make_body(body, 8, hidden_size=8, **options), vocab_size=VOCAB)
    ids = torch.randint(VOCAB, (1, 11))
    assert_close(lm.score(ids, window=4, cache=ContinuousCache(5)).log_prob, slow_cache(lm, ids, ContinuousCache(5)))
    before = [parameter.clone() for parameter in lm.parameters()]
    plain, adapted = (lm.score(ids, window=4, dynamic=dynamic).log_prob for dynamic in (None, DynamicEvaluation(0.1)))
    assert_close(adapted[:, :4], plain[:, :4], 1e-12)  # the first window is read before anything is learned
    assert (adapted[:, 4:] - plain[:, 4:]).abs().max() > 1e-6
    assert all(torch.equal(a, b) for a, b in zip(before, lm.parameters(), strict=True))


def test_the_cache_helps_on_a_text_that_repeats_itself():
    lm = TrellisLM(VOCAB, 6, 10, num_layers=5)
    ids = torch.tensor([[1, 2, 1, 1, 2, 1, 2, 2, 1, 2, 1, 2] * 4])
    assert lm.score(ids, cache=ContinuousCache(share=0.5)).perplexity < 0.7 * lm.score(ids).perplexity


def slow_dynamic(lm, ids, window, dynamic):
    """Krause et al., section 4, with the loss of the whole text so far, cut at the window's start."""
    lm.eval()
    trained = {name: parameter.detach().clone() for name, parameter in lm.named_parameters()}
    statistics = dynamic.statistics
    state, result = None, []
    for start in range(0, ids.shape[1] - 1, window):
        tokens = ids[:, start : start + window + 1]
        log_prob = lm.log_prob(tokens[:, :-1], state).gather(2, tokens[:, 1:, None])
        result.append(log_prob.squeeze(2).detach())
        out = lm(tokens[:, :-1], tokens[:, 1:], state)
        state = out.state
        lm.zero_grad()
        out.loss.backward()
        mean = None
        if statistics is not None:
            everything = torch.cat([s.sqrt().flatten() for s in statistics.values()])
            mean = everything.mean()
        with torch.no_grad():
            for name, parameter in lm.named_parameters():
                g, rms, rate = parameter.grad, 1.0, torch.tensor(dynamic.decay)
                if statistics is not None:
                    root = statistics[name].sqrt()
                    rms, rate = root + dynamic.epsilon, torch.minimum(dynamic.decay * root / mean, torch.tensor(1.0))
                parameter.copy_(parameter - dynamic.learning_rate * g / rms + rate * (trained[name] - parameter))
    with torch.no_grad():
        for name, parameter in lm.named_parameters():
            parameter.copy_(trained[name])
    lm.zero_grad()
    return torch.cat(result, 1)


@pytest.mark.parametrize("rms", [False, True])
def test_dynamic_evaluation_equals_its_definition(lm, rms):
    ids = torch.randint(VOCAB, (2, 15))
    statistics = gradient_statistics(lm, torch.randint(VOCAB, (2, 40)), window=10) if rms else None
    dynamic = DynamicEvaluation(0.05, 0.3, statistics, 1e-2)
    before = {name: parameter.detach().clone() for name, parameter in lm.named_parameters()}
    score = lm.score(ids, window=4, dynamic=dynamic)
    for name, parameter in lm.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None
    assert_close(score.log_prob, slow_dynamic(lm, ids, 4, dynamic))
    assert score.protocol.startswith("exact streaming in windows of 4, dynamic evaluation (")


def test_gradient_statistics_are_mean_squares_over_windows():
    lm = TrellisLM(VOCAB, 6, 10, num_layers=3)
    ids = torch.randint(VOCAB, (2, 9))
    first = lm(ids[:, :4], ids[:, 1:5])
    second = lm(ids[:, 4:8], ids[:, 5:9], first.state)
    names, parameters = zip(*lm.named_parameters(), strict=True)
    gradients = [torch.autograd.grad(out.loss, parameters) for out in (first, second)]
    statistics = gradient_statistics(lm, ids, window=4)
    for name, a, b in zip(names, *gradients, strict=True):
        assert_close(statistics[name], (a.square() + b.square()) / 2)


def test_dynamic_evaluation_learns_from_the_text_it_scores():
    lm = TrellisLM(VOCAB, 6, 10, num_layers=5)
    ids = torch.tensor([[1, 2, 3] * 30])
    dynamic = DynamicEvaluation(learning_rate=0.5, decay=0.0)
    assert lm.score(ids, window=5, dynamic=dynamic).perplexity < 0.7 * lm.score(ids).perplexity


def test_parameters_are_restored_after_an_error(monkeypatch):
    lm = TrellisLM(VOCAB, 6, 10, num_layers=5)
    before = lm.embedding.weight.detach().clone()
    read, calls = lm.head._nll, []

    def fail_later(*args):
        calls.append(args)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return read(*args)

    monkeypatch.setattr(lm.head, "_nll", fail_later)
    with pytest.raises(KeyboardInterrupt):
        lm.score(list(range(VOCAB)), window=2, dynamic=DynamicEvaluation(0.5))
    assert torch.equal(lm.embedding.weight, before)
    assert lm.training


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda lm: ContinuousCache(size=0), "cache size must be an integer >= 1, got 0"),
        (lambda lm: ContinuousCache(theta=-1.0), "cache theta must be a number >= 0, got -1.0"),
        (lambda lm: ContinuousCache(share=1.0), r"cache share must lie in \(0, 1\), got 1.0"),
        (lambda lm: DynamicEvaluation(learning_rate=-0.1), "dynamic learning_rate must be a number >= 0"),
        (lambda lm: lm.score([1]), "text must have at least two words"),
        (lambda lm: lm.score([]), "text must not be empty"),
        (lambda lm: lm.score([1, 9]), r"text must lie in 0 \.\. 8, got 9"),
        (lambda lm: lm.score([1, 2], window=0), "window must be an integer >= 1, got 0"),
        (lambda lm: DynamicEvaluation(epsilon=0.0), "dynamic epsilon must be a number > 0"),
        (lambda lm: gradient_statistics(lm, torch.tensor([[1]])), "ids must have at least two words"),
        (lambda lm: gradient_statistics(lm, torch.tensor([[1, 2]]), window=0), "window must be an integer >= 1, got 0"),
        (lambda lm: lm.score([1, 2], dynamic=DynamicEvaluation(statistics={})), "statistics of .* must have the shape"),
    ],
)
def test_errors_name_bad_values(make, message):
    with pytest.raises(ValueError, match=message):
        make(TrellisLM(VOCAB, 6, 10, num_layers=3))


def test_scores_in_half_precision_are_computed_in_single():
    lm = TrellisLM(VOCAB, 64, 64, num_layers=2, dtype=torch.bfloat16)
    ids = torch.randint(VOCAB, (2, 300))
    expected = lm.score(ids, cache=ContinuousCache())
    assert expected.log_prob.dtype == torch.float32
    single = TrellisLM(VOCAB, 64, 64, num_layers=2, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        single.score(ids, cache=ContinuousCache())
        single.score(ids, dynamic=DynamicEvaluation())


def test_dynamic_evaluation_skips_frozen_parameters(lm):
    lm.embedding.weight.requires_grad_(False)
    ids = torch.randint(VOCAB, (1, 20))
    statistics = gradient_statistics(lm, ids)
    assert "embedding.weight" not in statistics
    with torch.inference_mode():
        score = lm.score(ids, window=5, dynamic=DynamicEvaluation(0.1, 0.1, statistics))
    assert score.perplexity > 0


def test_nan_weights_give_a_nan_perplexity():
    lm = TrellisLM(VOCAB, 6, 10, num_layers=3)
    torch.nn.init.constant_(lm.head.bias, math.nan)
    assert math.isnan(lm.score([1, 2, 3]).perplexity)


def test_errors_name_bad_types():
    lm = TrellisLM(VOCAB, 6, 10, num_layers=3)
    with pytest.raises(TypeError, match="cache must be a ContinuousCache or None, got 5"):
        lm.score([1, 2], cache=5)
    with pytest.raises(TypeError, match="text must be text or a sequence of integers"):
        lm.score(["ab", "c"])
