import copy

import pytest
import torch

from reference import assert_close
from trellisnet import LanguageModel, TrellisLM, TrellisState
from trellisnet.models.build import build_language_model
from trellisnet.models.heads import IGNORED

VOCAB = 13


def make(**options):
    sizes = {"vocab_size": VOCAB, "embedding_size": 5, "hidden_size": 9, "num_layers": 4, **options}
    return TrellisLM(**sizes)


def text(batch=3, steps=17):
    ids = torch.randint(VOCAB, (batch, steps + 1))
    return ids[:, :-1], ids[:, 1:]


@pytest.mark.parametrize("head", ["softmax", "mos", "moc", "adaptive", "cluster"])
def test_the_loss_is_the_mean_of_log_prob_at_the_targets(head):
    lm = make(head=head)
    ids, targets = text()
    expected = -lm.log_prob(ids).gather(2, targets[..., None]).mean()
    out = lm(ids, targets)
    assert_close(out.loss, expected)
    assert out.parts.keys() == {"main"}
    assert_close(lm(ids).log_prob, lm.log_prob(ids))


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (4, 1)])
def test_small_batches(shape):
    ids, targets = text(*shape)
    lm = make()
    assert lm.log_prob(ids).shape == (*shape, VOCAB)
    lm(ids, targets).loss.backward()
    assert all(parameter.grad is not None for parameter in lm.parameters())


def test_the_output_is_as_wide_as_a_tied_embedding():
    assert make().net.output_size == 5
    assert make(tied=False).net.output_size == 9
    assert make(head="mos").net.output_size == 9
    assert make(head="adaptive").net.output_size == 9
    lm = make(head="cluster")
    assert lm.head.weight is lm.embedding.weight


def test_the_loss_is_the_sum_of_its_parts():
    lm = make(aux_every=2, aux_weight=0.3, alpha=2.0, beta=1.0)
    ids, targets = text()
    out = lm(ids, targets)
    features = lm.features(ids, aux=True)
    columns = targets.t()
    expected = {
        "main": lm.head.loss(features.output, columns),
        "aux": 0.3 * sum(lm.head.loss(level, columns) for level in features.aux),
        "activation": 2.0 * features.output.square().mean(),
        "temporal": (features.output[1:] - features.output[:-1]).square().mean(),
    }
    assert out.parts.keys() == expected.keys()
    for name, part in expected.items():
        assert_close(out.parts[name], part)
        assert not out.parts[name].requires_grad
    assert_close(out.loss, sum(expected.values()))
    assert lm.eval()(ids, targets).parts.keys() == {"main"}


def test_carried_history_is_exact():
    lm = make()
    ids, targets = text(steps=20)
    whole = lm(ids, targets)
    first = lm(ids[:, :7], targets[:, :7])
    second = lm(ids[:, 7:], targets[:, 7:], first.state)
    assert_close((7 * first.loss + 13 * second.loss) / 20, whole.loss)
    assert not first.state.h.requires_grad
    assert_close(lm.log_prob(ids[:, 7:], first.state), lm.log_prob(ids)[:, 7:])


def test_repackaged_history_starts_every_layer_from_the_last_step():
    lm = make(history="repackage")
    ids, targets = text()
    out = lm(ids, targets)
    assert_close(out.state.h[0], lm.features(ids).state.last[0])
    assert out.state.spans == (1,)
    pair = TrellisState(*(tensor.detach() for tensor in lm.features(ids).state.last))
    assert_close(lm(ids, targets, out.state).loss, lm.head.loss(lm.features(ids, pair).output, targets.t()))
    assert lm.eval()(ids, targets).state.spans != (1,)


def test_discarded_context_is_read_but_does_not_count():
    lm = make(history="discard", horizon=6)
    ids, targets = text(steps=10)
    out = lm(ids, targets)
    assert out.state is None
    assert_close(out.loss, lm.head.loss(lm.features(ids).output[6:], targets.t()[6:]))
    assert_close(lm(ids, targets, history="carry").loss, lm.head.loss(lm.features(ids).output, targets.t()))
    assert lm.eval()(ids, targets).state is not None
    assert lm(ids, history="discard").log_prob.shape == (3, 4, VOCAB)


def test_a_call_can_choose_its_depth():
    lm = make()
    ids, targets = text()
    assert_close(lm(ids, targets, depth=2).loss, lm.head.loss(lm.features(ids, depth=2).output, targets.t()))
    assert lm(ids, targets, depth=2).loss != lm(ids, targets).loss


def test_auxiliary_layers_beyond_the_depth_have_no_loss():
    lm = make(aux_every=3)
    ids, targets = text()
    assert lm(ids, targets, depth=2).parts.keys() == {"main"}
    assert lm(ids, targets, depth=7).parts.keys() == {"main", "aux"}


@pytest.mark.parametrize("head", ["softmax", "mos", "moc", "adaptive", "cluster"])
def test_recomputing_gives_the_same_gradients(head):
    stored, recomputed = make(head=head), make(head=head, memory="recompute")
    recomputed.load_state_dict(stored.state_dict())
    batch = text()
    for lm in (stored, recomputed):
        lm(*batch).loss.backward()
    for a, b in zip(stored.parameters(), recomputed.parameters(), strict=True):
        assert_close(a.grad, b.grad)


@pytest.mark.parametrize("head", ["softmax", "mos", "moc", "adaptive", "cluster"])
def test_the_loss_under_autocast_is_in_single_precision(head):
    lm = make(head=head, dtype=torch.float32, alpha=1.0, beta=1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = lm(*text())
    out.loss.backward()
    assert all(part.dtype == torch.float32 for part in out.parts.values())


def test_tied_weights_stay_tied_after_moves_and_copies():
    for lm in (make(device="meta").to_empty(device="cpu"), make().float(), copy.deepcopy(make())):
        assert lm.head.weight is lm.embedding.weight


def test_padding_with_ignored_targets_does_not_change_the_loss():
    lm = make(alpha=1.0, beta=1.0)
    ids, targets = text(1, 9)
    padded = torch.cat([ids, torch.zeros(1, 4, dtype=torch.int64)], 1)
    marked = torch.cat([targets, torch.full((1, 4), IGNORED)], 1)
    assert_close(lm(padded, marked).loss, lm(ids, targets).loss)


def test_embedding_dropout_drops_whole_tokens():
    lm = make(embedding_dropout=0.5)
    vectors = []
    lm.net.register_forward_pre_hook(lambda module, inputs: vectors.append(inputs[0].detach()))
    ids = torch.arange(VOCAB).repeat(2, 3)
    lm(ids)
    by_token = vectors[0].transpose(0, 1).reshape(6, VOCAB, 5)
    assert torch.equal(by_token, by_token[:1].expand_as(by_token))
    dropped = by_token[0].eq(0).all(1)
    assert 0 < dropped.sum() < VOCAB
    assert_close(by_token[0][~dropped], 2 * lm.embedding.weight[~dropped])


@pytest.mark.parametrize("where", ["input_dropout", "output_dropout"])
def test_variational_dropout_has_one_mask_per_sequence(where):
    lm = make(**{where: 0.5})
    seen = []
    hook = (lambda m, i: seen.append(i[0].detach())) if where == "input_dropout" else None
    if hook is not None:
        lm.net.register_forward_pre_hook(hook)
    else:
        read = lm.head._nll
        lm.head._nll = lambda hidden, targets: (seen.append(hidden.detach()), read(hidden, targets))[1]
    lm(*text(8, 10))
    zero = seen[0].eq(0)
    assert torch.equal(zero, zero[:1].expand_as(zero))
    assert 0 < zero.sum() < zero.numel()
    assert not torch.equal(zero[0, 0], zero[0, 1]) or not torch.equal(zero[0, 0], zero[0, 2])
    lm.eval()
    seen.clear()
    lm(*text(8, 10))
    assert not seen[0].eq(0).any()


def test_a_training_step_lowers_the_loss():
    lm = make(embedding_size=8, hidden_size=32, weight_norm=True)
    optimiser = torch.optim.Adam(lm.parameters(), lr=0.02)
    ids = torch.arange(30).remainder(7)[None].repeat(2, 1)
    first = lm(ids[:, :-1], ids[:, 1:]).loss.item()
    for _ in range(40):
        optimiser.zero_grad()
        loss = lm(ids[:, :-1], ids[:, 1:]).loss
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.5 * first
    assert torch.equal(copy.deepcopy(lm).eval().log_prob(ids), lm.eval().log_prob(ids))


# parameter counts and sizes of appendix D; hidden_size here includes the output channels
PAPER = {
    "word PTB": (24.18e6, dict(vocab_size=10_000, embedding_size=400, hidden_size=1400, num_layers=55)),
    "word PTB, MoS": (
        25.7e6,
        dict(vocab_size=10_000, embedding_size=280, hidden_size=1480, num_layers=55, output_size=480, head="mos"),
    ),
    "char PTB": (13.4e6, dict(vocab_size=50, embedding_size=200, hidden_size=1200, num_layers=125)),
    "WikiText-103": (
        180e6,
        dict(vocab_size=267_735, embedding_size=512, hidden_size=2112, num_layers=70, head="cluster"),
    ),
}


@pytest.mark.parametrize("name", PAPER)
def test_parameter_counts_match_the_paper(name):
    count, sizes = PAPER[name]
    lm = TrellisLM(**sizes, device="meta")
    assert lm.num_parameters == pytest.approx(count, rel=0.02 if name == "WikiText-103" else 0.005)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"vocab_size": 1}, ValueError, "vocab_size must be an integer >= 2, got 1"),
        ({"embedding_size": 0}, ValueError, "embedding_size"),
        ({"head": "tree"}, ValueError, "head must be one of"),
        ({"output_size": 6}, ValueError, "tied embeddings need output_size = embedding_size = 5, got output_size = 6"),
        ({"aux_weight": 0.1}, ValueError, "aux_weight needs aux_every"),
        ({"aux_every": 2, "aux_weight": -1}, ValueError, "aux_weight must be a number >= 0, got -1"),
        ({"alpha": "2"}, TypeError, "alpha must be a number >= 0, got '2'"),
        ({"history": "forget"}, ValueError, "history must be one of 'carry', 'repackage', 'discard', got 'forget'"),
        ({"history": "discard"}, ValueError, "horizon belongs to history='discard'"),
        ({"horizon": 3}, ValueError, "horizon belongs to history='discard'"),
        ({"input_dropout": 1}, ValueError, "input_dropout"),
        ({"hiden_dropout": 0.1}, TypeError, "hiden_dropout is not an option of this model"),
        (
            {"batch_first": True},
            TypeError,
            r"batch_first is not .* sequences always come as \(B, T",
        ),
        ({"hidden_size": 4}, ValueError, "hidden_size must be at least embedding_size = 5"),
        ({"vocabulary": ["a"]}, TypeError, "vocabulary must be a Vocabulary, got list"),
    ],
)
def test_errors_name_bad_arguments(options, error, message):
    with pytest.raises(error, match=message):
        make(**options)


def test_errors_name_bad_input():
    lm = make()
    ids, targets = text()
    wrong = ids.clone()
    wrong[1, 2] = VOCAB
    for bad, error, message in [
        (wrong, ValueError, "ids must lie in 0 .. 12, got 13"),
        (wrong - 20, ValueError, "ids must lie in 0 .. 12, got -"),
        (ids.double(), TypeError, "ids must be integers, got torch.float64"),
        (ids[0], ValueError, r"ids must be \(B, T\) and not empty, got shape \(17,\)"),
        (ids[:, :0], ValueError, "not empty"),
        ([[1, 2]], TypeError, "ids must be integers, got list"),
    ]:
        with pytest.raises(error, match=message):
            lm(bad)
    with pytest.raises(ValueError, match=r"targets must lie in 0 \.\. 12"):
        lm(ids, wrong)
    with pytest.raises(ValueError, match="targets must have the shape of ids"):
        lm(ids, targets[:, 1:])
    with pytest.raises(ValueError, match="state must belong to 3 sequences"):
        lm(ids, targets, lm(ids[:2]).state)
    with pytest.raises(ValueError, match="history must be one of"):
        lm(ids, targets, history="none")
    with pytest.raises(ValueError, match="needs a model with a horizon"):
        lm(ids, targets, history="discard")
    short = make(history="discard", horizon=17)
    with pytest.raises(ValueError, match="more than horizon = 17 steps to discard, got 17"):
        short(ids, targets)
    with pytest.raises(ValueError, match="state must be None with history='discard'"):
        short(ids, targets, lm(ids).state)


@pytest.mark.parametrize(
    ("options", "bound"),
    [({}, 1.5), ({"embedding_size": 100}, 0.6), ({"cell": "relu"}, 0.1), ({"init": "paper"}, 0.1)],
)
def test_embeddings_of_gated_cells_have_a_wide_initial_range(options, bound):
    lm = TrellisLM(**{"vocab_size": 200, "embedding_size": 16, "hidden_size": 128, "num_layers": 3, **options})
    assert 0.98 * bound < lm.embedding.weight.abs().max().item() <= bound


def test_a_tied_head_reads_all_channels(tmp_path):
    for body in ("trellis", "lstm"):
        options = {"body": body, "embedding_size": 6, "hidden_size": 10, "num_layers": 2}
        lm = build_language_model(vocab_size=VOCAB, **options, read_all=True)
        assert lm.net.output_size == 10
        assert lm.head.weight is lm.embedding.weight
        ids = torch.randint(VOCAB, (2, 5))
        features = lm.net(lm.embedding(ids.t()))[0] @ lm.head.map.weight.t()
        expected = (features @ lm.embedding.weight.t() + lm.head.bias).log_softmax(-1).transpose(0, 1)
        assert_close(lm.log_prob(ids), expected.detach())
        lm.save_pretrained(tmp_path / body)
        assert_close(LanguageModel.from_pretrained(tmp_path / body).log_prob(ids), expected.detach())


@pytest.mark.parametrize("name", ["alpha", "beta", "aux_weight"])
def test_a_weight_that_no_loss_can_have_is_refused(name):
    with pytest.raises(ValueError, match=rf"{name} must be a number from 0 to 1e\+30, got 1e\+40"):
        make(**{name: 10**40, "aux_every": 2})
