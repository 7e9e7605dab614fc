from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from reference import assert_close
from trellisnet.models.heads import IGNORED, chunked, make_head, smoothed
from trellisnet.models.heads.adaptive import check_cutoffs, default_cutoffs

VOCAB, FEATURES, VECTOR = 23, 6, 6
OPTIONS = {
    "softmax": {},
    "untied": {"tied": False},
    "reading all": {"read_all": True},
    "mos": {"experts": 3},
    "untied mos": {"experts": 2, "tied": False},
    "moc": {"experts": 3},
    "untied moc": {"experts": 2, "tied": False},
    "cluster": {"cutoffs": [5, 9, 20]},
    "untied cluster": {"cutoffs": [5], "tied": False},
    "adaptive": {"cutoffs": [4, 10]},
}
NAMES = {name: name.split()[-1] for name in OPTIONS} | {"untied": "softmax", "reading all": "softmax"}


@pytest.fixture(params=OPTIONS)
def head(request):
    torch.manual_seed(0)
    embedding = nn.Parameter(torch.randn(VOCAB, VECTOR, dtype=torch.float64))
    head = make_head(NAMES.get(request.param, request.param), FEATURES, embedding, **OPTIONS[request.param])
    for parameter in head.parameters():
        nn.init.normal_(parameter)
    return head


@pytest.fixture
def batch():
    torch.manual_seed(1)
    hidden = torch.randn(7, 3, FEATURES, dtype=torch.float64, requires_grad=True)
    return hidden, torch.randint(VOCAB, (7, 3))


def probabilities(head, hidden):
    """Every head by its definition, with whole matrices."""
    name = type(head).__name__
    if name == "SoftmaxHead":
        hidden = hidden if head.map is None else hidden @ head.map.weight.T
        return (hidden @ head.weight.T + head.bias).softmax(-1)
    if name in ("MixtureHead", "ContextHead"):
        weights = head.prior(hidden).softmax(-1)
        experts = head.latent(hidden).tanh().unflatten(-1, (head.experts, VECTOR))
        if name == "ContextHead":
            return ((weights[..., None] * experts).sum(-2) @ head.weight.T + head.bias).softmax(-1)
        return (weights[..., None] * (experts @ head.weight.T + head.bias).softmax(-1)).sum(-2)
    if name == "ClusterHead":
        edges = [*head.cutoffs, VOCAB]
        logits = hidden @ head.weight.T + head.bias
        stones = hidden @ head.tombstones.T + head.tombstone_bias
        first = torch.cat([logits[..., : edges[0]], stones], -1).softmax(-1)
        parts = [first[..., : edges[0]]]
        for i, (low, high) in enumerate(pairwise(edges)):
            parts.append(first[..., edges[0] + i, None] * logits[..., low:high].softmax(-1))
        return torch.cat(parts, -1)
    edges = [*head.softmax.cutoffs]
    first = head.softmax.head(hidden).softmax(-1)
    parts = [first[..., : edges[0]]]
    for i, tail in enumerate(head.softmax.tail):
        parts.append(first[..., edges[0] + i, None] * tail(hidden).softmax(-1))
    return torch.cat(parts, -1)


@pytest.mark.parametrize("chunk", [1, 50, 2**24])
def test_values_and_gradients_equal_the_definition(head, batch, chunk, monkeypatch):
    monkeypatch.setattr(chunked, "CHUNK", chunk)
    hidden, targets = batch
    expected = probabilities(head, hidden).log()
    tensors = (hidden, *head.parameters())
    assert_close(head.log_prob(hidden), expected)
    nll = -expected.gather(-1, targets[..., None]).squeeze(-1)
    assert_close(head.nll(hidden, targets), nll)
    assert_close(head.loss(hidden, targets), nll.mean())
    weights = torch.randn_like(nll)
    wanted = torch.autograd.grad((nll * weights).sum(), tensors, retain_graph=True)
    assert_close(torch.autograd.grad((head.nll(hidden, targets) * weights).sum(), tensors), wanted)
    wanted = torch.autograd.grad(expected.square().sum(), tensors)
    got = torch.autograd.grad(head.log_prob(hidden).square().sum(), tensors)
    for ours, theirs in zip(got, wanted, strict=True):
        assert_close(ours / theirs.abs().max(), theirs / theirs.abs().max())


def test_probabilities_sum_to_one(head, batch):
    assert_close(head.log_prob(batch[0]).exp().sum(-1), torch.ones(7, 3, dtype=torch.float64), 1e-12)


def test_ignored_targets_do_not_count(head, batch):
    hidden, targets = batch
    mixed = targets.clone()
    mixed[2:5, 1] = IGNORED
    counted = mixed != IGNORED
    assert_close(head.loss(hidden, mixed), head.nll(hidden, targets)[counted].mean())
    assert head.nll(hidden, mixed)[~counted].eq(0).all()
    assert head.loss(hidden, torch.full_like(targets, IGNORED)).item() == 0


def test_clusters_without_a_target_have_no_gradient(batch):
    hidden, _ = batch
    head = make_head("cluster", FEATURES, nn.Parameter(torch.randn(VOCAB, VECTOR).double()), cutoffs=[5, 9])
    head.loss(hidden, torch.zeros(7, 3, dtype=torch.int64)).backward()
    assert head.weight.grad[:5].ne(0).any(dim=1).all()
    assert head.weight.grad[5:].eq(0).all()


@pytest.mark.parametrize("name", ["mos", "moc"])
def test_latent_dropout_is_the_same_at_every_step(name):
    head = make_head(name, FEATURES, nn.Parameter(torch.randn(VOCAB, VECTOR)), experts=2, latent_dropout=0.5)
    step = torch.randn(1, 3, FEATURES)
    log_prob = head.log_prob(step.expand(5, -1, -1))
    # a matrix product may round its rows differently
    assert_close(log_prob, log_prob[:1].expand(5, -1, -1), 1e-12)
    assert not torch.allclose(log_prob[0], head.log_prob(step)[0])
    head.eval()
    assert torch.equal(head.log_prob(step), head.log_prob(step))


def test_chunked_gradients_pass_gradcheck(monkeypatch):
    monkeypatch.setattr(chunked, "CHUNK", 10)
    torch.manual_seed(0)
    tensors = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((5, 3), (4, 3), (4,))]
    assert torch.autograd.gradcheck(lambda *t: chunked.linear_nll(*t, torch.tensor([0, 3, 1, 1, 2])), tensors)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("rows", [1, 7])
def test_the_smoothed_loss_is_that_of_torch_with_all_gradients(monkeypatch, rows, smoothing):
    monkeypatch.setattr(smoothed, "CHUNK", 2 * VOCAB)
    torch.manual_seed(0)
    tensors = [torch.randn(*shape, requires_grad=True) for shape in ((rows, FEATURES), (VOCAB, FEATURES), (VOCAB,))]
    targets = torch.randint(VOCAB, (rows,))
    expected = F.cross_entropy(F.linear(*tensors), targets, label_smoothing=smoothing)
    loss = smoothed.smoothed_loss(*tensors, targets, smoothing)
    assert_close(loss, expected)
    for found, wanted in zip(
        torch.autograd.grad(3 * loss, tensors), torch.autograd.grad(3 * expected, tensors), strict=True
    ):
        assert_close(found, wanted)


def test_the_smoothed_loss_without_targets_is_zero(head, batch):
    if type(head).__name__ == "SoftmaxHead":
        loss = head.smoothed_loss(batch[0][:0, 0], batch[1][:0, 0], 0.1)
        loss.backward()
        assert loss.item() == 0
        assert not head.weight.grad.any()


def test_the_smoothed_loss_in_half_precision_is_computed_in_single():
    head = make_head("softmax", FEATURES, nn.Parameter(torch.randn(VOCAB, FEATURES, dtype=torch.float32)))
    hidden, targets = torch.randn(7, FEATURES, dtype=torch.float32), torch.randint(VOCAB, (7,))
    single = head.float().smoothed_loss(hidden, targets, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = head.smoothed_loss(hidden, targets, 0.1)
        half = head.smoothed_loss(hidden.bfloat16(), targets, 0.1)
    assert loss.dtype == half.dtype == torch.float32
    assert loss.item() == pytest.approx(single.item(), rel=1e-5)  # single precision
    assert half.item() == pytest.approx(single.item(), rel=0.05)  # features of eight bits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_losses_in_half_precision_are_computed_in_single(head, batch, dtype):
    hidden, targets = batch
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = head.float().loss(hidden.to(dtype), targets)
    assert loss.dtype == torch.float32
    half = head.bfloat16()
    assert half.loss(hidden.bfloat16(), targets).item() == pytest.approx(loss.item(), rel=0.05)
    assert half.log_prob(hidden.bfloat16()).dtype == torch.float32


def head_embedding():
    return nn.Parameter(torch.zeros(VOCAB, VECTOR))


@pytest.mark.parametrize("vocab_size", [2, 3, 10, 100, 10_000, 267_735])
def test_default_cutoffs_fit_every_vocabulary(vocab_size):
    assert check_cutoffs(None, vocab_size) == default_cutoffs(vocab_size)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("hierarchical", {}, "head must be one of 'softmax', 'mos', 'moc', 'adaptive', 'cluster', got 'hierarchical'"),
        ("softmax", {"experts": 3}, "experts belongs to head 'mos' or 'moc'"),
        ("softmax", {"cutoffs": [3]}, "cutoffs belongs to head 'adaptive' or 'cluster'"),
        ("adaptive", {"tied": True}, "tied belongs to head"),
        ("cluster", {"read_all": True}, "read_all belongs to head 'softmax': got read_all=True with head='cluster'"),
        ("softmax", {"read_all": True, "tied": False}, "read_all belongs to tied heads"),
        ("mos", {"experts": 0}, "experts must be an integer >= 1, got 0"),
        ("mos", {"latent_dropout": 1.0}, "latent_dropout"),
        ("moc", {"cutoffs": [3]}, "cutoffs belongs to head 'adaptive' or 'cluster'"),
        ("cluster", {"cutoffs": [9, 5]}, r"cutoffs must rise and stay below vocab_size = 23, got \[9, 5\]"),
        ("cluster", {"cutoffs": [23]}, "cutoffs must rise"),
        ("adaptive", {"cutoffs": []}, "cutoffs must not be empty"),
    ],
)
def test_errors_name_bad_options(name, options, message):
    with pytest.raises(ValueError, match=message):
        make_head(name, FEATURES, head_embedding(), **options)


def test_tied_sizes_must_match():
    for name in ("softmax", "cluster"):
        with pytest.raises(ValueError, match=r"tied embeddings need output_size = embedding_size = 6, got .* 9"):
            make_head(name, 9, head_embedding())
        assert make_head(name, 9, head_embedding(), tied=False).weight.shape == (VOCAB, 9)
    head = make_head("softmax", 9, head_embedding(), read_all=True)
    assert (head.weight.shape, head.map.weight.shape) == ((VOCAB, VECTOR), (VECTOR, 9))
    for name in ("mos", "moc"):
        assert make_head(name, 9, head_embedding()).weight.shape == (VOCAB, VECTOR)


def test_targets_must_fit_the_features(head, batch):
    with pytest.raises(ValueError, match=r"targets must have the shape \(7, 3\) of the features, got \(7,\)"):
        head.loss(batch[0], batch[1][:, 0])


def test_softmax_equals_torch(batch):
    hidden, targets = batch
    head = make_head("softmax", FEATURES, nn.Parameter(torch.randn(VOCAB, VECTOR).double()))
    expected = F.cross_entropy(head.logits(hidden).flatten(0, 1), targets.flatten())
    assert_close(head.loss(hidden, targets), expected, 1e-14)


def test_no_more_than_a_chunk_of_logits_exists(monkeypatch):
    """With a vocabulary of 267,735 and 2,560 targets, the whole matrix would have 685 million."""
    blocks = []
    affine = chunked.affine
    monkeypatch.setattr(chunked, "CHUNK", 2**16)
    monkeypatch.setattr(chunked, "affine", lambda *a: blocks.append(affine(*a)) or blocks[-1])
    for name in ("cluster", "mos", "moc"):
        head = make_head(name, 4, nn.Parameter(torch.randn(20_000, 4)))
        head.loss(torch.randn(50, 4), torch.randint(20_000, (50,))).backward()
    assert blocks
    assert max(block.numel() for block in blocks) <= 2**16
