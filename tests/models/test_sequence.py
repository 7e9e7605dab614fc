import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from reference import assert_close
from trellisnet import TrellisClassifier, TrellisNet, TrellisRegressor
from trellisnet.models.sequence import SequenceLabeller

LENGTHS = [12, 3, 1, 7]


def classifier(**options):
    return TrellisClassifier(3, 10, num_layers=4, num_classes=5, dilation=[1, 2], **options)


def regressor(**options):
    return TrellisRegressor(3, 10, num_layers=4, **options)


def labeller(**options):
    return SequenceLabeller(TrellisNet(3, 10, num_layers=4, aux_every=4), 2, **options)


@pytest.fixture
def x():
    return torch.randn(4, 12, 3)


def test_the_label_is_read_at_each_sequences_own_end(x):
    model = classifier()
    labels = torch.tensor([4, 0, 2, 2])
    expected = torch.cat([model(row[None, :n]).prediction for row, n in zip(x, LENGTHS, strict=True)])
    out = model(x, labels, lengths=LENGTHS)
    assert_close(out.prediction, expected)
    assert_close(out.loss, F.cross_entropy(expected, labels))
    assert out.parts.keys() == {"main"}
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    assert_close(model(packed, labels).loss, out.loss)
    assert torch.equal(model.predict(x, LENGTHS), expected.argmax(1))


def test_auxiliary_losses_count_in_training_only(x):
    model = classifier(aux_every=2, aux_weight=0.5)
    labels = torch.tensor([4, 0, 2, 2])
    _, _, aux = model.net(x.transpose(0, 1), tail=1, aux=True)
    expected = 0.5 * sum(F.cross_entropy(model.readout(level[0]), labels) for level in aux)
    out = model(x, labels)
    assert_close(out.parts["aux"], expected)
    assert_close(out.loss, out.parts["main"] + expected)
    assert model.eval()(x, labels).parts.keys() == {"main"}


def test_a_classifier_predicts_without_dropout(x):
    model = classifier(input_dropout=0.5, output_dropout=0.5, hidden_dropout=0.5)
    assert not torch.equal(model(x).prediction, model(x).prediction)
    assert torch.equal(model.predict(x), model.predict(x))
    assert model.training


@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("each_step", [False, True])
def test_several_depths_in_one_call(x, each_step, lengths):
    model = regressor(each_step=True, aux_every=3) if each_step else classifier(hidden_dropout=0.5)
    targets = torch.randn(4, 12, 1) if each_step else torch.tensor([4, 0, 2, 2])
    found = model.at_depths([6, 1, 3], x, targets, lengths)
    assert model.training
    model.eval()
    for depth, out in zip([6, 1, 3], found, strict=True):
        expected = model(x, targets, lengths, depth=depth)
        assert_close(out.prediction, expected.prediction)
        assert_close(out.loss, expected.loss)
        assert not out.prediction.requires_grad
    assert model.at_depths([2, 4], x)[0].loss is None


def test_one_value_per_sequence(x):
    model = regressor(num_values=2)
    targets = torch.randn(4, 2)
    expected = torch.cat([model(row[None, :n]).prediction for row, n in zip(x, LENGTHS, strict=True)])
    out = model(x, targets, LENGTHS)
    assert_close(out.prediction, expected)
    assert_close(out.loss, F.mse_loss(expected, targets))
    assert out.state is None


def test_one_value_per_step(x):
    model = regressor(each_step=True, aux_every=4)
    targets = torch.randn(4, 12)
    out = model(x, targets, LENGTHS)
    assert out.prediction.shape == (4, 12, 1)
    rows = [model(row[None, :n]).prediction[0, :, 0] for row, n in zip(x, LENGTHS, strict=True)]
    errors = torch.cat([row - target[: len(row)] for row, target in zip(rows, targets, strict=True)])
    assert_close(out.parts["main"], errors.square().mean())
    assert_close(out.parts["aux"], 0.05 * errors.square().mean())  # the fourth of four layers is the last
    assert_close(model(x, targets.unsqueeze(2), LENGTHS).loss, out.loss)


def test_a_regressor_predicts_without_dropout(x):
    model = regressor(output_dropout=0.5)
    assert torch.equal(model.predict(x, LENGTHS), model.predict(x, LENGTHS))
    assert_close(model.predict(x), model.eval()(x).prediction)


def test_independent_labels_at_every_step(x):
    model = labeller()
    targets = torch.rand(4, 12, 2).round()
    out = model(x, targets, LENGTHS)
    assert out.prediction.shape == (4, 12, 2)
    total, steps = 0.0, 0
    for row, labels, n in zip(x, targets, LENGTHS, strict=True):
        logits = model(row[None, :n]).prediction[0]
        for step in range(n):
            for logit, label in zip(logits[step], labels[step], strict=True):
                total -= torch.log(torch.sigmoid(logit if label else -logit))
            steps += 1
    assert_close(out.parts["main"], total / steps)
    assert_close(out.parts["aux"], 0.05 * total / steps)  # the fourth of four layers is the last
    parameters = list(model.parameters())
    assert_close(torch.autograd.grad(out.loss, parameters), torch.autograd.grad(1.05 * total / steps, parameters))
    assert_close(model(x, targets.bool(), LENGTHS).loss, out.loss)
    assert_close(model.predict(x), model.eval()(x).prediction.sigmoid())


def test_a_labeller_continues_from_its_state(x):
    model = labeller()
    first = model(x[:, :5])
    assert_close(
        torch.cat([first.prediction, model(x[:, 5:], state=first.state).prediction], 1), model(x).prediction, 1e-12
    )


def test_labels_are_checked(x):
    with pytest.raises(ValueError, match=r"targets must be labels of shape \(4, 12, 2\), got \(4, 12\)"):
        labeller()(x, torch.zeros(4, 12))
    with pytest.raises(ValueError, match=r"targets must be 0 or 1, got 0\.5"):
        labeller()(x, torch.full((4, 12, 2), 0.5))
    with pytest.raises(ValueError, match="num_labels must be an integer >= 1, got 0"):
        SequenceLabeller(TrellisNet(3, 10, num_layers=4), 0)


def test_auxiliary_layers_beyond_the_depth_have_no_loss(x):
    model = regressor(aux_every=3)
    assert model(x, torch.zeros(4), depth=2).parts.keys() == {"main"}


def test_steps_can_be_chained(x):
    model = regressor(each_step=True)
    whole = model(x).prediction
    first = model(x[:, :5])
    assert_close(torch.cat([first.prediction, model(x[:, 5:], state=first.state).prediction], 1), whole)
    assert not first.state.h.requires_grad


def test_a_classifier_learns_to_separate_sequences():
    model = classifier()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    x, labels = torch.randn(32, 12, 3), torch.arange(32).remainder(5)
    x[:, 5, 0] += 3 * labels
    for _ in range(60):
        optimiser.zero_grad()
        loss = model(x, labels).loss
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.7
    assert model.predict(x).eq(labels).double().mean() > 0.8


def test_the_readout_in_half_precision_is_computed_in_single(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = classifier(dtype=torch.float32)(x.float(), torch.zeros(4, dtype=torch.int64))
    assert out.loss.dtype == torch.float32
    assert classifier(dtype=torch.bfloat16)(x.bfloat16()).prediction.dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: classifier()(x[0]), ValueError, r"x must be \(B, T, C\) or a PackedSequence, got \(12, 3\)"),
        (lambda x: classifier()(x[..., :2]), ValueError, "x must have input_size = 3"),
        (lambda x: classifier()(x, torch.tensor([0, 1, 2, 5])), ValueError, r"targets must lie in 0 \.\. 4, got 5"),
        (lambda x: classifier()(x, torch.zeros(4)), ValueError, r"targets must be integer labels of shape \(4,\)"),
        (lambda x: classifier()(x, torch.zeros(3, dtype=torch.int64)), ValueError, r"one per sequence, got .*\(3,\)"),
        (lambda x: classifier()(x, lengths=[1, 2, 3, 13]), ValueError, r"lengths\[3\] must lie in 1 .. 12"),
        (
            lambda x: regressor()(x, torch.zeros(4, 2)),
            ValueError,
            r"must have the shape \(4, 1\), got \(4, 2\)",
        ),
        (lambda x: regressor()(x, torch.zeros(4, dtype=torch.int64)), TypeError, "targets must be a floating-point"),
        (
            lambda x: TrellisClassifier(3, 10, 4, num_classes=1),
            ValueError,
            "num_classes must be an integer >= 2",
        ),
        (lambda x: regressor(num_values=0), ValueError, "num_values must be an integer >= 1, got 0"),
        (lambda x: classifier()(x.long()), TypeError, "x must be of floating-point numbers, got torch.int64"),
        (lambda x: classifier(batch_first=True), TypeError, "batch_first is not an option of this model"),
        (lambda x: classifier(aux_weight=1.0), ValueError, "aux_weight needs aux_every"),
    ],
)
def test_errors_name_bad_input(x, call, error, message):
    with pytest.raises(error, match=message):
        call(x)
