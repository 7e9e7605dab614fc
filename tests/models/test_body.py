"""Any net that follows the protocol can be a body; one that does not is named with what it does wrong."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from trellisnet import TrainingConfig, fit
from trellisnet.models.body import check_body, needs_state, pack_state, run_body, unpack_state
from trellisnet.models.language import LanguageModel
from trellisnet.models.sequence import SequenceClassifier
from trellisnet.training.progress import Progress


class Gru(nn.Module):
    """A user's body, as short as can be."""

    def __init__(self, input_size, output_size):
        super().__init__()
        self.input_size, self.output_size = input_size, output_size
        self.gru = nn.GRU(input_size, output_size)

    def forward(self, x, state=None):
        return self.gru(x, state)


class WrongSize(Gru):
    def forward(self, x, state=None):
        y, state = self.gru(x, state)
        return y[..., :-1], state


class BatchFirst(Gru):
    def forward(self, x, state=None):
        y, state = self.gru(x, state)
        return y, state.transpose(0, 1)


class Stateless(Gru):
    def forward(self, x, state=None):
        return self.gru(x)[0], None


class Alone(Gru):
    def forward(self, x, state=None):
        return self.gru(x)[0]


class Unsaved(Gru):
    """Its state is of a type that torch does not know as a pytree: it is one leaf, and no tensor."""

    def forward(self, x, state=None):
        y, h = self.gru(x, None if state is None else state.h)
        return y, SimpleNamespace(h=h)


X = torch.randn(5, 3, 4)


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (
            WrongSize,
            ValueError,
            r"body WrongSize must give an output .* = \(5, 3, 6\), got a tensor of .*\(5, 3, 5\)",
        ),
        (BatchFirst, ValueError, r"body BatchFirst must give a state .* the batch of 3 in dimension 1"),
        (Alone, TypeError, r"body Alone must return \(y, state\), got a tensor of shape \(5, 3, 6\)"),
    ],
)
def test_a_body_that_breaks_the_protocol_is_named(body, error, message):
    with pytest.raises(error, match=message):
        run_body(body(4, 6).float(), X.float())


def test_a_body_must_be_a_module_with_sizes():
    with pytest.raises(TypeError, match=r"body must be an nn\.Module that follows trellisnet\.models\.body, got int"):
        check_body(3)
    with pytest.raises(TypeError, match=r"Linear\.input_size must be an integer >= 1, got None"):
        check_body(nn.Linear(2, 2))


@pytest.mark.parametrize("option", ["depth", "aux"])
def test_an_option_that_a_body_does_not_have(option):
    with pytest.raises(ValueError, match=f"{option} is no option of the body Gru"):
        run_body(Gru(4, 6), X.to(torch.get_default_dtype()), **{option: 2})


def test_no_state_where_one_is_needed():
    body = Stateless(4, 6)
    out = run_body(body, X.to(torch.get_default_dtype()))
    with pytest.raises(ValueError, match="body Stateless returned no state to continue from"):
        needs_state(body, out.state)
    lm = LanguageModel(Stateless(4, 4), 7)
    with pytest.raises(ValueError, match="body Stateless returned no state to continue from"):
        lm.generate(torch.tensor([[1, 2]]), 3)


def test_a_state_that_cannot_be_saved():
    with pytest.raises(
        TypeError, match="body Unsaved must give a state that is a pytree of tensors, got SimpleNamespace"
    ):
        run_body(Unsaved(4, 6), X.to(torch.get_default_dtype()))


def test_a_state_that_is_saved():
    _, state = Gru(4, 6)(X.to(torch.get_default_dtype()))
    packed = pack_state({"h": state, "more": (state, [state])})
    again = unpack_state(packed, "cpu")
    assert torch.equal(again["more"][1][0], state)


def test_tails_and_lengths_are_done_for_a_body_that_knows_neither():
    body, x = Gru(4, 6), X.to(torch.get_default_dtype())
    out = run_body(body, x, lengths=[5, 2, 3], tail=1)
    y, _ = body(x)
    assert torch.equal(out.output[0], y[[4, 1, 2], range(3)])
    assert out.state is None


@pytest.fixture
def _single(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))


@pytest.mark.usefixtures("_single")
def test_a_classifier_on_a_users_body(tmp_path):
    x = torch.randn(200, 7, 3)
    rows = [row[: 3 + i % 5] for i, row in enumerate(x)]
    model = SequenceClassifier(Gru(3, 12), num_classes=2)
    config = TrainingConfig(epochs=12, batch_size=8, learning_rate=0.02)
    result = fit(model, (rows, (x[:, 0, 0] > 0).long()), config, tmp_path / "run", valid=0.2)
    assert result.metrics["valid"]["accuracy"] > 0.7
    with pytest.raises(ValueError, match=r"was built with a body of its own: pass body=Gru\(\)"):
        SequenceClassifier.from_pretrained(tmp_path / "run" / "best")
    loaded = SequenceClassifier.from_pretrained(tmp_path / "run" / "best", body=Gru(3, 12))
    assert torch.equal(loaded.predict(x), model.predict(x))


@pytest.mark.usefixtures("_single")
def test_a_language_model_on_a_users_body():
    lm = LanguageModel(Gru(8, 8), vocab_size=5)
    ids = torch.arange(60).remainder(5).reshape(2, 30)
    optimiser = torch.optim.Adam(lm.parameters(), 0.05)
    for _ in range(40):
        optimiser.zero_grad()
        lm(ids[:, :-1], ids[:, 1:]).loss.backward()
        optimiser.step()
    assert lm.generate(torch.tensor([[0, 1]]), 6).tolist() == [[0, 1, 2, 3, 4, 0, 1, 2]]
    assert lm.generate([[0, 1], [3, 4]], 2) == [[0, 1, 2, 3], [3, 4, 0, 1]]
    with pytest.raises(
        ValueError, match=r"body Gru returned no state .*; sequences of unequal lengths need a body with"
    ):
        lm.generate([[0, 1], [3]], 2)
