import pytest
import torch

from reference import assert_close
from tiny import tiny_config, tiny_sequences
from trellisnet import TrellisClassifier
from trellisnet.baselines.rnn import LstmBody
from trellisnet.models.reconstruction import Reconstruction
from trellisnet.models.sequence import SequenceClassifier, SequenceLabeller
from trellisnet.training import fit, tasks
from trellisnet.training.progress import Progress


def one_by_one(decoder, x, output, anchors):
    """The definition: one sequence and one step after the other."""
    errors = []
    for b, anchor in enumerate(anchors):
        states = decoder.start(output[anchor - 1, b]).tanh().view(2, 2, 1, -1)
        h, c = states[0], states[1]
        before = torch.zeros(1, 1, x.shape[2])
        for t in range(anchor - decoder.steps, anchor):
            y, (h, c) = decoder.decoder(before, (h, c))
            before = x[t, b].view(1, 1, -1) if t >= 0 else torch.zeros_like(before)
            if t >= 0:
                errors.append((decoder.readout(y)[0, 0] - x[t, b]) ** 2)
    return torch.cat(errors).mean()


@pytest.mark.parametrize("anchors", [[4, 9, 7], [9, 9, 9], [1, 3, 4]])
def test_the_loss_is_that_of_its_definition(anchors):
    decoder = Reconstruction(2, 5, steps=4, hidden_size=3)
    x, output = torch.randn(9, 3, 2), torch.randn(9, 3, 5, requires_grad=True)
    wanted = (output, *decoder.parameters())
    losses = decoder.at(x, output, torch.tensor(anchors)), one_by_one(decoder, x, output, anchors)
    assert_close(*losses)
    gradients = [torch.autograd.grad(loss, wanted) for loss in losses]
    for ours, theirs in zip(*gradients, strict=True):
        assert_close(ours, theirs)
    assert {(int(t) + 1, int(b)) for t, b in gradients[0][0].abs().sum(2).nonzero()} == set(
        zip(anchors, range(3), strict=True)
    )


def test_anchors_lie_between_a_whole_stretch_and_the_end(monkeypatch):
    decoder, seen = Reconstruction(1, 2, steps=3, hidden_size=2), []
    monkeypatch.setattr(decoder, "at", lambda x, output, anchors: seen.append(anchors))
    for _ in range(200):
        decoder(torch.zeros(6, 3, 1), torch.zeros(6, 3, 2), torch.tensor([6, 3, 1]))
    found = torch.stack(seen)
    assert [sorted(set(column.tolist())) for column in found.T] == [[3, 4, 5, 6], [3], [1]]


@pytest.mark.parametrize("lengths", [None, [12, 3, 1, 7]])
def test_the_loss_is_one_of_training(lengths):
    x, labels = torch.randn(4, 12, 3), torch.tensor([4, 0, 2, 2])
    options = {"aux_every": 2, "reconstruct_steps": 5, "reconstruct_weight": 0.5}
    model = TrellisClassifier(3, 10, num_layers=4, num_classes=5, **options)
    out = model(x, labels, lengths=lengths)
    assert out.parts.keys() == {"main", "aux", "reconstruction"}
    assert_close(out.loss, sum(out.parts.values()))
    assert out.state is None
    out.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    plain = TrellisClassifier(3, 10, num_layers=4, num_classes=5, aux_every=2)
    plain.load_state_dict(model.state_dict(), strict=False)
    without = plain(x, labels, lengths=lengths)
    assert_close(out.prediction, without.prediction)
    assert_close(out.parts["aux"], without.parts["aux"])
    assert model.eval()(x, labels, lengths=lengths).parts.keys() == {"main"}


def test_what_is_reconstructed_reaches_the_body(tmp_path):
    """A labeller has outputs at all steps anyway."""
    x = torch.randn(2, 8, 3)
    model = SequenceLabeller(LstmBody(3, hidden_size=6), 3, reconstruct_steps=4, reconstruct_size=7)
    optimiser = torch.optim.Adam(model.parameters(), 0.03)
    losses = []
    for _ in range(100):
        out = model(x, (x > 0).double())
        optimiser.zero_grad()
        out.loss.backward()
        optimiser.step()
        losses.append(out.parts["reconstruction"].item())
    assert sum(losses[-10:]) < 0.6 * sum(losses[:10])
    model.save_pretrained(tmp_path)
    again = SequenceLabeller.from_pretrained(tmp_path)
    assert again.reconstruction.decoder.hidden_size == 7
    assert_close(again(x).prediction, model.eval()(x).prediction)


def test_training_resumes_exactly(tmp_path, monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_sequences(ragged=True))
    config = tiny_config({"body": "lstm", "reconstruct_steps": 3}, text=False, save_minutes=0.0)
    whole = fit.train_new(config, "run", tmp_path / "whole")

    class Killed(BaseException):
        pass

    def advance(self, at, *args, original=Progress.advance):
        original(self, at, *args)
        if at == 15:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "advance", advance)
        with pytest.raises(Killed):
            fit.train_new(config, "run", tmp_path / "killed")
    assert fit.resume(tmp_path / "killed").metrics() == whole.metrics()
    assert "reconstruction" in whole.metrics()[0]["parts"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reconstruct_steps": 0}, "reconstruct_steps must be an integer >= 1, got 0"),
        ({"reconstruct_steps": 3, "reconstruct_weight": 0}, "reconstruct_weight must be a number > 0, got 0"),
        (
            {"reconstruct_steps": 3, "bidirectional": True},
            "reconstruct_steps needs bidirectional=False: got 3 and True",
        ),
        ({"reconstruct_weight": 2}, "reconstruct_weight needs reconstruct_steps: got reconstruct_weight=2"),
        ({"reconstruct_size": 8}, "reconstruct_size needs reconstruct_steps: got reconstruct_size=8"),
        ({"reconstruct_steps": 3, "reconstruct_size": -1}, "reconstruct_size must be an integer >= 1, got -1"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        SequenceClassifier(LstmBody(3, hidden_size=4), 5, **options)
