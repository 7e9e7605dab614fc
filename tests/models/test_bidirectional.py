from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from reference import assert_close
from tiny import tiny_config, tiny_sequences
from trellisnet import TrellisClassifier, TrellisNet, TrellisRegressor
from trellisnet.baselines.rnn import LstmBody
from trellisnet.core.cells import TanhCell
from trellisnet.models.bidirectional import backwards, twin_of
from trellisnet.models.sequence import SequenceClassifier, SequenceLabeller, SequenceRegressor
from trellisnet.training import tasks

LENGTHS = [9, 2, 1, 6]


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_size, self.output_size = 3, 4
        self.gru = nn.GRU(3, 4)

    def forward(self, x, state=None):
        return self.gru(x, state)


MODELS = {
    "trellis classifier": lambda **more: TrellisClassifier(3, 6, 4, num_classes=5, dilation=[1, 2], **more),
    "trellis regressor": lambda **more: TrellisRegressor(3, 6, 3, each_step=True, weight_norm=True, **more),
    "labeller": lambda **more: SequenceLabeller(TrellisNet(3, 6, 2, path="sweeps"), 2, **more),
    "lstm": lambda **more: SequenceClassifier(LstmBody(3, 6, 2, output_size=4), 3, **more),
    "own body": lambda **more: SequenceRegressor(Gru(), 2, **more),
}


@pytest.fixture
def x():
    return torch.randn(4, 9, 3)


def by_hand(model, row):
    """The prediction for one sequence (T, C), from the two nets."""
    there, back = model.net(row[:, None])[0][:, 0], model.reverse(row.flip(0)[:, None])[0][:, 0]
    both = torch.cat([there, back.flip(0)], -1) if model.each_step else torch.cat([there[-1], back[-1]])
    return model.readout(both)


@pytest.mark.parametrize("name", MODELS)
def test_each_sequence_is_read_from_both_ends(name, x, tmp_path):
    torch.manual_seed(1)
    model = MODELS[name](bidirectional=True).eval()
    out = model(x, lengths=LENGTHS)
    assert out.state is None
    for row, n, prediction in zip(x, LENGTHS, out.prediction, strict=True):
        assert_close(prediction[:n] if model.each_step else prediction, by_hand(model, row[:n]))
    with pytest.raises(ValueError, match="state must be None: a bidirectional model reads whole sequences"):
        model(x, state=torch.zeros(1, 4, 6))
    model.save_pretrained(tmp_path)
    own = {"body": Gru()} if name == "own body" else {}
    again = type(model).from_pretrained(tmp_path, **own)
    assert_close(again(x, lengths=LENGTHS).prediction, out.prediction)


@pytest.mark.parametrize("each_step", [False, True])
def test_auxiliary_losses_and_depths_of_both_nets(x, each_step):
    model = TrellisRegressor(3, 6, 4, each_step=each_step, aux_every=2, bidirectional=True)
    targets = torch.randn(4, 9, 1) if each_step else torch.randn(4, 1)
    out = model(x, targets, lengths=LENGTHS)
    assert out.parts.keys() == {"main", "aux"}
    out.loss.backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())
    for depth, found in zip((2, 4), model.at_depths((2, 4), x, targets, LENGTHS), strict=True):
        with model.reading():
            assert_close(found.prediction, model(x, lengths=LENGTHS, depth=depth).prediction)


def test_a_twin_has_weights_of_its_own():
    class Scaled(TanhCell, nn.Module):
        def __init__(self):
            nn.Module.__init__(self)
            self.scale = nn.Parameter(torch.ones((), dtype=torch.float32))

    net = TrellisNet(3, 6, 2, dtype=torch.float32, cell=Scaled())
    twin = twin_of(net)
    assert twin.kernel.weight_hidden.dtype == torch.float32
    assert not torch.equal(twin.kernel.weight_hidden, net.kernel.weight_hidden)
    assert twin.cell is not net.cell
    assert twin_of(Gru()).gru is not Gru().gru
    assert torch.equal(
        backwards(torch.arange(6.0).view(3, 2, 1), [3, 2])[..., 0], torch.tensor([[4, 3], [2, 1], [0, 5.0]])
    )


def test_tasks_refuse_it_where_targets_are_later_inputs(monkeypatch):
    config = tiny_config({"bidirectional": True}, text=False)
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_sequences(ragged=True))
    assert tasks.make_task(config).model.reverse is not None
    music = replace(tiny_sequences("labels"), ahead=True)
    monkeypatch.setattr(tasks, "load", lambda name, **options: music)
    message = "bidirectional must be false for the data tiny, whose targets are later inputs"
    with pytest.raises(ValueError, match=message):
        tasks.make_task(config)


@pytest.mark.parametrize("name", MODELS)
def test_predict_reads_arrays(name, x):
    model = MODELS[name]()
    expected = model.predict(x, LENGTHS)
    frozen = x.numpy().copy()
    frozen.flags.writeable = False
    assert torch.equal(model.predict(frozen, np.array(LENGTHS)), expected)
    model.predict(np.ones((1, 4, 3), dtype=np.int8))
    with pytest.raises(TypeError, match="x must be an array of numbers, got object"):
        model.predict(np.array([[["a"]]], dtype=object))
