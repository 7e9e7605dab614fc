"""Taggers against the equations, step by step."""

import pytest
import torch

from trellisnet import SequenceTagger, TrellisNet
from trellisnet.baselines.rnn import GruBody
from trellisnet.models.bodies import BODIES, make_body
from trellisnet.models.build import build_tagger


@pytest.fixture
def x():
    return torch.randn(3, 7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


LABELS = torch.tensor([[0, 1, 2, 1, 0, 2, 2], [1, 1, 0, 0, 0, 0, 0], [2, 0, 1, 2, 1, 0, 0]])


@pytest.mark.parametrize("lengths", [None, [7, 2, 5]])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_loss_and_gradients(x, lengths, bidirectional):
    torch.manual_seed(0)
    model = SequenceTagger(GruBody(2, hidden_size=4), 3, bidirectional=bidirectional).double()
    fast = model(x, LABELS, lengths=lengths).loss
    terms = []
    for b, length in enumerate(lengths or [7, 7, 7]):
        alone = x[b, :length, None]  # (T, 1, C)
        output = model.net(alone)[0]
        if bidirectional:
            output = torch.cat([output, model.reverse(alone.flip(0))[0].flip(0)], dim=-1)
        for t in range(length):
            scores = torch.exp(model.readout(output[t, 0]))
            terms.append(-torch.log(scores[LABELS[b, t]] / scores.sum()))
    slow = torch.stack(terms).sum() / len(terms)
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)
    ours, theirs = (torch.autograd.grad(loss, list(model.parameters())) for loss in (fast, slow))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("body", list(BODIES))
def test_every_body_tags(body):
    sizes = {"hidden_size": 8, **({"num_layers": 2} if "trellis" in body else {})}
    model = SequenceTagger(make_body(body, 2, **sizes), 3)
    model(torch.randn(3, 7, 2), LABELS, lengths=[7, 2, 5]).loss.backward()
    assert model.readout.weight.grad.abs().sum() > 0
    assert model.predict(torch.randn(3, 7, 2)).shape == (3, 7)
    assert type(build_tagger(body, 2, 3, **sizes).net) is type(model.net)


def test_a_stream_equals_the_whole(x):
    model = SequenceTagger(TrellisNet(2, 6, 3), 3).double()
    whole = model(x)
    first = model(x[:, :4])
    second = model(x[:, 4:], state=first.state)
    torch.testing.assert_close(torch.cat([first.prediction, second.prediction], 1), whole.prediction)


def test_save_and_load(tmp_path, x):
    model = SequenceTagger(GruBody(2, hidden_size=4), 3, bidirectional=True).double()
    model.save_pretrained(tmp_path)
    again = SequenceTagger.from_pretrained(tmp_path)
    torch.testing.assert_close(again(x).prediction, model(x).prediction, rtol=0, atol=0)
    assert again.predict(x.numpy()).tolist() == model.predict(x).tolist()


def test_wrong_targets(x):
    model = SequenceTagger(GruBody(2, hidden_size=4), 3).double()
    with pytest.raises(ValueError, match=r"integer labels of shape \(3, 7\), one per step, got torch.int64 \(3,\)"):
        model(x, LABELS[:, 0])
    with pytest.raises(ValueError, match=r"targets must lie in 0 .. 2, got 3"):
        model(x, LABELS + 1)
    with pytest.raises(ValueError, match="num_classes must be an integer >= 2, got 1"):
        SequenceTagger(GruBody(2, hidden_size=4), 1)
