"""Translators against the equations, step by step, and everything around a model."""

import math

import pytest
import torch

from reference import assert_close
from trellisnet import Seq2Seq, TrellisSeq2Seq, Vocabulary
from trellisnet.models.beam import beam_search

BODIES = {
    "trellis": {"hidden_size": 6, "num_layers": 3},
    "lstm": {"hidden_size": 6},
    "transformer": {"hidden_size": 8, "num_layers": 1, "heads": 2, "window": 16},
    "tcn": {"hidden_size": 6, "num_layers": 2},
}


def translator(body="trellis", **options):
    return Seq2Seq(9, 7, 4, body=body, **{**BODIES[body], "attention_heads": 2, **options})


@pytest.fixture
def pair():
    return torch.randint(9, (3, 5)), torch.randint(7, (3, 4))


def softmax_loop(model, query, states):
    """The attention of one step (D) over states (S, N): sums written out, head by head."""
    head = model.attention
    width = len(query) // head.heads
    keys, values = (states @ head.key_value.weight.t()).chunk(2, dim=1)
    mapped = head.query.weight @ query
    found = []
    for h in range(head.heads):
        part = slice(h * width, (h + 1) * width)
        scores = [sum(mapped[part] * key[part]) / math.sqrt(width) for key in keys]
        total = sum(score.exp() for score in scores)
        found.append(sum(score.exp() / total * value[part] for score, value in zip(scores, values, strict=True)))
    return head.out.weight @ torch.cat(found)


def loss_loop(model, source, target):
    """The loss of one pair, from the equations: one sentence, one step at a time."""
    vectors = model.source_embedding.weight[source]
    forward, _ = model.forward_encoder(vectors[:, None])
    backward, _ = model.backward_encoder(vectors.flip(0)[:, None])
    states = torch.cat([forward[:, 0], backward.flip(0)[:, 0]], dim=1)
    before = [model.start, *target[:-1].tolist()]
    lower, _ = model.net(model.embedding.weight[before][:, None])
    joined = [torch.cat([query, softmax_loop(model, query, states)]) for query in lower[:, 0]]
    upper, _ = model.upper(torch.stack(joined)[:, None])
    total = 0.0
    for z, token in zip(upper[:, 0], target, strict=True):
        logits = model.embedding.weight @ model.projection(z) + model.head.bias
        log_prob = logits - logits.exp().sum().log()
        smoothing = model.options.label_smoothing if model.training else 0.0
        total = total - (1 - smoothing) * log_prob[token] - smoothing * log_prob.mean()
    return total


@pytest.mark.parametrize("body", ["trellis", "lstm"])
@pytest.mark.parametrize("training", [True, False])
def test_the_loss_is_that_of_the_equations_with_all_gradients(body, training, pair):
    source, targets = pair
    model = translator(body).train(training)
    lengths, ends = [5, 1, 3], [4, 2, 1]
    padded = targets.clone()
    for row, end in enumerate(ends):
        padded[row, end:] = -100
    out = model(source, padded, lengths=lengths)
    expected = sum(
        loss_loop(model, source[b, :n], targets[b, :m]) for b, (n, m) in enumerate(zip(lengths, ends, strict=True))
    )
    expected = expected / sum(ends)
    assert_close(out.loss, expected)
    names, parameters = zip(*model.named_parameters(), strict=True)
    found, wanted = (torch.autograd.grad(loss, parameters) for loss in (out.loss, expected))
    for name, one, other in zip(names, found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=0, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(3, 5, 4), (2, 7, 3), (1, 1, 1)])
def test_the_loss_alone_is_that_beside_the_prediction_with_all_gradients(training, shape):
    rows, steps, targets = shape[0], torch.randint(9, shape[:2]), torch.randint(7, shape[::2])
    targets[-1, 2:] = -100
    model, lengths = translator().train(training), [shape[1]] * (rows - 1) + [1]
    both = model(steps, targets, lengths)
    alone = model(steps, targets, lengths, predict=False)
    assert alone.prediction is None
    assert_close(alone.loss, both.loss)
    assert_close(alone.parts["main"], both.loss.detach())
    for found, wanted in zip(
        *(torch.autograd.grad(out.loss, tuple(model.parameters())) for out in (alone, both)), strict=True
    ):
        assert_close(found, wanted)


def test_no_targets_no_loss(pair):
    source, targets = pair
    assert translator()(source, torch.full_like(targets, -100), predict=False).loss.item() == 0


@pytest.mark.parametrize("body", BODIES)
def test_token_by_token_equals_the_whole(body, pair):
    source, targets = pair
    model = translator(body).eval()
    lengths = [5, 2, 4]
    whole = model(source, targets, lengths=lengths).prediction
    memory = model.encode(source, lengths)
    step = model._next_token(memory)
    state, before = None, torch.full((3, 1), model.start)
    for t in range(targets.shape[1]):
        log_prob, state = step(before, state, None)
        torch.testing.assert_close(log_prob, whole[:, t], atol=1e-12, rtol=0)
        before = targets[:, t : t + 1]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("max_length", [6, None])
def test_a_batch_translates_as_its_sentences_alone(body, max_length):
    model = translator(body, start=0)
    torch.nn.init.constant_(model.head.bias[:1], -1.0)  # long translations
    sources = [[3, 1, 4, 1, 5], [2], [7, 1, 8]]
    together = model.translate(sources, beams=3, end=0, max_length=max_length)
    assert together == [model.translate([row], beams=3, end=0, max_length=max_length)[0] for row in sources]
    limits = [6] * 3 if max_length else [17, 11, 14]  # a short sentence has no more room beside a long one
    assert all(len(row) <= limit for row, limit in zip(together, limits, strict=True))
    assert max(map(len, together)) == max(limits)


def test_one_beam_is_greedy():
    model = translator().eval()
    source = torch.tensor([[3, 1, 4]])
    found = model.translate([[3, 1, 4]], beams=1, end=0, max_length=5)[0]
    before, greedy = [model.start], []
    for _ in range(5):
        log_prob = model(source, torch.tensor([[*before[1:], 0]])).prediction
        token = int(log_prob[0, -1].argmax())
        if token == 0:
            break
        greedy.append(token)
        before.append(token)
    assert found == greedy


def test_beams_find_what_all_sequences_hold():
    """With as many beams as sequences, the search is exhaustive."""
    model = translator(label_smoothing=0.0).eval()
    memory = model.encode(torch.tensor([[3, 1, 4]]))
    (found,) = beam_search(model._next_token(memory), [[model.start]], [2], 49, 0.0, 1.0, frozenset([0]))
    every = [(0,), *((a, b) for a in range(1, 7) for b in range(7))]
    scores = {}
    for tokens in every:
        log_prob = model(torch.tensor([[3, 1, 4]]), torch.tensor([tokens])).prediction[0].detach()
        scores[tokens] = sum(float(row[token]) for row, token in zip(log_prob, tokens, strict=True))
    assert found == max(scores, key=scores.__getitem__)


@pytest.mark.parametrize(("options", "bound"), [({"hidden_size": 8}, 3.0), ({"hidden_size": 8, "init": "torch"}, 0.5)])
def test_embeddings_have_the_scale_that_the_body_expects(options, bound):
    model = Seq2Seq(90, 70, 4, body="lstm", **options)
    for table in (model.embedding, model.source_embedding):
        assert 0.9 * bound < table.weight.abs().max() <= bound


def test_attention_weights_are_shares_of_the_source(pair):
    source, targets = pair
    weights = translator().alignment(source[:1], targets[:1])
    assert weights.shape == (4, 5)
    assert_close(weights.sum(1), torch.ones(4))


def test_text_is_translated_to_text(tmp_path):
    german = Vocabulary(["<eos>", "<unk>", "ein", "Hund"], "words")
    english = Vocabulary(["<eos>", "<unk>", "a", "dog", "runs"], "words")
    model = TrellisSeq2Seq(
        4, 5, 8, hidden_size=8, num_layers=2, path="sweeps", source_vocabulary=german, target_vocabulary=english
    )
    texts = model.translate(["ein Hund", "", "  Katze "])
    assert texts[1] == ""
    assert all(word in english.tokens for text in texts for word in text.split())
    model.save_pretrained(tmp_path)
    loaded = Seq2Seq.from_pretrained(tmp_path)
    assert type(loaded) is TrellisSeq2Seq
    assert loaded.translate(["ein Hund", "", "  Katze "]) == texts
    assert (loaded.source_vocabulary, loaded.target_vocabulary) == (german, english)


def test_the_encoder_may_be_another_body_and_an_embedding_shared(tmp_path, pair):
    source, targets = pair
    model = Seq2Seq(
        9, 9, 4, body="gru", hidden_size=6, shared=True, bidirectional=False, encoder={"name": "lstm", "hidden_size": 5}
    )
    assert model.source_embedding is model.embedding
    model(source, targets).loss.backward()
    model.save_pretrained(tmp_path)
    loaded = Seq2Seq.from_pretrained(tmp_path)
    assert loaded.options.encoder == {"name": "lstm", "hidden_size": 5}
    assert Seq2Seq(9, 9, 4, body="gru", hidden_size=6, encoder={"name": "lstm"}).forward_encoder.output_size == 6
    assert torch.equal(loaded(source, targets).prediction, model.eval()(source, targets).prediction)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention_heads": 4}, "attention_heads must divide the body's output_size = 6, got 4"),
        ({"shared": True}, "shared needs source_vocab_size = target_vocab_size, got 9 and 7"),
        ({"label_smoothing": 1.5}, "label_smoothing"),
        ({"aux_every": 1}, "aux_every belongs to models with auxiliary losses"),
        ({"encoder": {"hidden_size": 3}}, "encoder must be a mapping with the name of a body"),
        ({"encoder": {"name": "lsm"}}, "encoder: body must be one of .* got 'lsm', did you mean 'lstm'"),
        ({"encoder": {"name": "lstm", "heads": 2}}, "encoder: heads is not an option of the body 'lstm'"),
        ({"source_vocabulary": Vocabulary(["a"], "words")}, "source_vocabulary must have 9 tokens, .* got 1"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        translator(**change)


def test_wrong_calls_are_named(pair):
    source, targets = pair
    model = translator()
    with pytest.raises(ValueError, match=r"source must lie in 0 \.\. 8, got"):
        model(source + 9, targets)
    for bad in (targets + 7, targets - 7):
        with pytest.raises(ValueError, match=r"targets must lie in 0 \.\. 6, or be -100, got"):
            model(source, bad)
    with pytest.raises(ValueError, match="targets must have the 3 rows of source, got 2"):
        model(source, targets[:2])
    with pytest.raises(ValueError, match="targets must be integers"):
        model(source, targets.double())
    with pytest.raises(ValueError, match="text needs a model with vocabularies"):
        model.translate(["ein Hund"])
    with pytest.raises(TypeError, match="sources must be a list of sentences, got str"):
        model.translate("ein Hund")
    with pytest.raises(ValueError, match="end must be given"):
        model.translate([[1, 2]])
    with pytest.raises(ValueError, match="body must be 'trellis'"):
        TrellisSeq2Seq(9, 7, 4, 6, 2, body="lstm")
