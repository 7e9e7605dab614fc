"""Read-outs of whole sequences, against loops over the sequences."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from reference import assert_close
from tiny import tiny_config, tiny_sequences
from trellisnet import TrellisClassifier, TrellisNet, TrellisRegressor
from trellisnet.baselines.rnn import GruBody
from trellisnet.models.export.programs import make_program
from trellisnet.models.pooling import Pooling
from trellisnet.models.sequence import SequenceClassifier, SequenceLabeller
from trellisnet.training.tasks import make_task

KINDS = ("mean", "max", "attention")
LENGTHS = [7, 1, 4]


def summary(model, y):
    """What a model reads of the output (T, D) of one sequence."""
    if model.options.readout == "mean":
        return sum(y) / len(y)
    if model.options.readout == "max":
        return torch.stack([max(channel) for channel in y.t()])
    weights = [torch.exp(model.pooling.score.weight[0] @ step) for step in y]
    return sum(weight * step for weight, step in zip(weights, y, strict=True)) / sum(weights)


def make(kind, **options):
    model = TrellisClassifier(3, 6, 4, num_classes=5, dilation=[1, 2], readout=kind, **options)
    if kind == "attention":
        nn.init.normal_(model.pooling.score.weight)
    return model


def naive(model, x, lengths):
    """The logits of each sequence, from outputs of its own."""
    rows = []
    for row, n in zip(x, lengths, strict=True):
        y = model.net(row[:n, None])[0][:, 0]
        if model.reverse is not None:
            y = torch.cat([y, model.reverse(row[:n].flip(0)[:, None])[0][:, 0].flip(0)], -1)
        rows.append(model.readout(summary(model, y)))
    return torch.stack(rows)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradients(kind, lengths, bidirectional):
    model = make(kind, bidirectional=bidirectional)
    x, labels = torch.randn(3, 7, 3, requires_grad=True), torch.tensor([4, 0, 2])
    out = model(x, labels, lengths)
    expected = naive(model, x, lengths or [7] * 3)
    assert_close(out.prediction, expected)
    assert out.state is None
    tensors = [x, *model.parameters()]
    found = torch.autograd.grad(out.loss, tensors)
    assert_close(found, torch.autograd.grad(F.cross_entropy(expected, labels), tensors))
    given = None if lengths is None else torch.tensor(lengths)
    assert_close(model.predict(x.detach(), given), expected.argmax(1))


@pytest.mark.parametrize("kind", KINDS)
def test_padding_cannot_matter(kind):
    pool = Pooling(kind, 2, dtype=torch.float64)
    y = torch.randn(5, 2, 2)
    y[3:, 1] = torch.nan
    pooled = pool(y, [5, 3])
    assert_close(pooled[:, 1], pool(y[:3, 1:], None)[:, 0])
    assert pooled.shape == (1, 2, 2)


def test_attention_starts_as_the_mean():
    y = torch.randn(5, 2, 4)
    assert_close(Pooling("attention", 4)(y, [5, 2]), Pooling("mean", 4)(y, [5, 2]))


@pytest.mark.parametrize("kind", KINDS)
def test_inner_layers_and_depths_are_summarised_too(kind):
    model = make(kind, aux_every=2, aux_weight=0.5)
    x, labels = torch.randn(3, 7, 3), torch.tensor([4, 0, 2])
    out = model(x, labels, LENGTHS)
    levels = [model.at_depths([depth], x, lengths=LENGTHS)[0].prediction for depth in (2, 4)]
    assert_close(out.parts["aux"], 0.5 * sum(F.cross_entropy(level, labels) for level in levels))
    several = model.at_depths([2, 4], x, labels, LENGTHS)
    assert_close([each.prediction for each in several], levels)
    assert_close(several[1].loss, out.parts["main"])


def test_with_a_reconstruction():
    model = make("mean", reconstruct_steps=3)
    out = model(torch.randn(3, 7, 3), torch.tensor([4, 0, 2]), LENGTHS)
    assert out.parts.keys() == {"main", "reconstruction"}
    assert out.prediction.shape == (3, 5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", ["trellis", "gru"])
def test_saved_and_loaded(kind, body, tmp_path):
    model = make(kind) if body == "trellis" else SequenceClassifier(GruBody(3, hidden_size=4), 5, readout=kind)
    x = torch.randn(3, 7, 3)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert again.options.readout == kind
    assert_close(again(x, lengths=LENGTHS).prediction, model.eval()(x, lengths=LENGTHS).prediction)


@pytest.mark.parametrize("kind", KINDS)
def test_programs_of_sequences(kind):
    """What a file of the model holds; `test_exported` writes one."""
    model = make(kind)
    program = make_program(model, length=7, lengths=True)
    x, lengths = torch.randn(3, 7, 3), torch.tensor(LENGTHS)
    assert_close(program(x, lengths)[0], model.eval()(x, lengths=lengths).prediction)
    with pytest.raises(ValueError, match=f"a stream needs a model with readout='last', got '{kind}'"):
        make_program(model, length=None, lengths=False)


def test_exported(tmp_path):
    torch.set_default_dtype(torch.float32)
    model = TrellisRegressor(1, 2, 1, readout="attention")
    assert model.export(tmp_path / "model.pt2", format="pt2", length=2, lengths=True).difference < 1e-5
    model.save_pretrained(tmp_path)
    assert type(TrellisRegressor.from_pretrained(tmp_path)) is TrellisRegressor  # not a class that tracing made


def test_recipes_choose_it():
    task = make_task(tiny_config({"readout": "max"}, text=False), tiny_sequences(ragged=True))
    assert task.model.pooling.kind == "max"
    assert task.model.wanted_steps(9) is None


def test_wrong_readouts():
    with pytest.raises(ValueError, match="readout must be one of 'last', 'mean', 'max', 'attention', got 'first'"):
        make("first")
    for build in (
        lambda: TrellisRegressor(2, 4, 2, each_step=True, readout="mean"),
        lambda: SequenceLabeller(TrellisNet(2, 4, 2), 2, readout="mean"),
    ):
        with pytest.raises(ValueError, match="readout belongs to models with one answer per sequence, got 'mean' for"):
            build()
