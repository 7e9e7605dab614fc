"""Quantiles and distributions against the equations, one target at a time."""

import math

import numpy as np
import pytest
import torch

from trellisnet import SequenceClassifier, SequenceRegressor, TrellisRegressor
from trellisnet.baselines.rnn import GruBody
from trellisnet.models.bodies import BODIES, make_body
from trellisnet.models.distributions import FLOOR, student_quantiles

KINDS = [{"quantiles": [0.05, 0.3, 0.6, 0.95]}, {"quantiles": [0.7]}, {"distribution": "normal"}]
KINDS += [{"distribution": "student-t"}]


@pytest.fixture
def x():
    return torch.randn(3, 7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def softplus(value):
    return torch.log(1 + torch.exp(value))


def slow_quantiles(raw, levels):
    """One number after the other, from the level nearest to 1/2 outwards."""
    middle = min(range(len(levels)), key=lambda i: abs(levels[i] - 0.5))
    found = [None] * len(levels)
    found[middle] = raw[middle]
    for i in range(middle + 1, len(levels)):
        found[i] = found[i - 1] + softplus(raw[i])
    for i in range(middle - 1, -1, -1):
        found[i] = found[i + 1] - softplus(raw[middle - 1 - i])
    return found


def slow_loss(raw, y, options, degrees):
    if "quantiles" in options:
        levels = options["quantiles"]
        terms = [
            level * (y - q) if y >= q else (1 - level) * (q - y)
            for level, q in zip(levels, slow_quantiles(raw, levels), strict=True)
        ]
        return sum(terms) / len(terms)
    scale = softplus(raw[1]) + FLOOR
    z = (y - raw[0]) / scale
    if options["distribution"] == "normal":
        return -torch.log(torch.exp(-z * z / 2) / (scale * math.sqrt(2 * math.pi)))
    n = 2 + softplus(degrees)
    density = torch.exp(torch.lgamma((n + 1) / 2) - torch.lgamma(n / 2)) / torch.sqrt(n * math.pi) / scale
    return -torch.log(density * (1 + z * z / n) ** (-(n + 1) / 2))


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("lengths", [None, [7, 2, 5]])
@pytest.mark.parametrize("each_step", [False, True])
def test_loss_and_gradients(x, options, lengths, each_step):
    torch.manual_seed(1)
    model = SequenceRegressor(GruBody(2, hidden_size=4), 2, each_step, **options).double()
    targets = torch.randn(3, *([7] if each_step else []), 2, dtype=torch.float64)
    fast = model(x, targets, lengths=lengths).loss
    output, _ = model.net(x.transpose(0, 1))
    terms = []
    for b, length in enumerate(lengths or [7, 7, 7]):
        for t in range(length) if each_step else [length - 1]:
            raw = model.readout(output[t, b]).view(2, -1)
            for d in range(2):
                y = targets[b, t, d] if each_step else targets[b, d]
                degrees = model.spread.degrees[d] if options.get("distribution") == "student-t" else None
                terms.append(slow_loss(raw[d], y, options, degrees))
    slow = torch.stack(terms).mean()
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)
    parameters = [p for p in model.parameters() if p.requires_grad]
    for ours, theirs in zip(torch.autograd.grad(fast, parameters), torch.autograd.grad(slow, parameters), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_quantiles_never_cross(x):
    model = SequenceRegressor(GruBody(2, hidden_size=4), 3, quantiles=(0.01, 0.02, 0.4, 0.5, 0.9)).double()
    torch.nn.init.normal_(model.readout.weight, std=100.0)
    found = model.predict(10 * x)
    assert found.shape == (3, 3, 5)
    assert (found.diff(dim=-1) >= 0).all()


def test_quantiles_of_distributions(x):
    """The share of the density below a quantile is its level."""
    for name in ("normal", "student-t"):
        model = SequenceRegressor(GruBody(2, hidden_size=4), distribution=name).double()
        prediction, found = model(x).prediction[:, 0], model.predict(x)[:, 0]
        for parameters, quantiles in zip(prediction.detach(), found, strict=True):
            for level, quantile in zip((0.1, 0.5, 0.9), quantiles, strict=True):
                z = torch.linspace(-4000.0, 0.0, 400_001, dtype=torch.float64)
                at = quantile + z * parameters[1] / 100
                density = torch.exp(-model.spread.loss(parameters.expand(len(at), 1, -1), at[:, None]))[:, 0]
                assert torch.trapezoid(density, at).item() == pytest.approx(level, abs=2e-5)


def test_student_quantiles_have_closed_forms():
    levels = np.array([0.001, 0.1, 0.25, 0.5, 0.8, 0.999])
    a = 4 * levels * (1 - levels)
    of_two = 2 * (levels - 0.5) * np.sqrt(2 / a)
    with np.errstate(invalid="ignore"):
        of_four = np.sign(levels - 0.5) * 2 * np.sqrt(np.cos(np.arccos(np.sqrt(a)) / 3) / np.sqrt(a) - 1)
    np.testing.assert_allclose(student_quantiles(np.array([2.0, 4.0]), levels.tolist()), [of_two, of_four], atol=1e-9)
    normal = torch.special.ndtri(torch.tensor(levels)).numpy()
    np.testing.assert_allclose(student_quantiles(np.array([1e7]), levels.tolist())[0], normal, atol=1e-5)


@pytest.mark.parametrize("body", [name for name in BODIES])
def test_every_body_learns_quantiles(body):
    sizes = {"hidden_size": 8, **({"num_layers": 2} if "trellis" in body else {})}
    model = SequenceRegressor(make_body(body, 2, **sizes), 2, quantiles=[0.1, 0.9])
    out = model(torch.randn(3, 6, 2), torch.randn(3, 2))
    out.loss.backward()
    assert out.prediction.shape == (3, 2, 2)
    assert model.readout.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_save_and_load(tmp_path, x, options):
    model = TrellisRegressor(2, 6, 3, num_values=2, dtype=torch.float64, **options).eval()
    if options.get("distribution") == "student-t":
        torch.nn.init.constant_(model.spread.degrees, 1.0)
    model.save_pretrained(tmp_path)
    again = TrellisRegressor.from_pretrained(tmp_path)
    torch.testing.assert_close(again.predict(x), model.predict(x), rtol=0, atol=0)
    assert again.options.quantiles == model.options.quantiles


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantiles": [0.5, 0.1]}, r"quantiles must be ascending numbers between 0 and 1, got \[0.5, 0.1\]"),
        ({"quantiles": [0.5, 0.5]}, "quantiles must be ascending"),
        ({"quantiles": [0.0, 0.5]}, r"between 0 and 1, got \[0.0, 0.5\]"),
        ({"quantiles": [0.5, 1.0]}, "between 0 and 1"),
        ({"quantiles": []}, r"quantiles must be a list of numbers between 0 and 1, .* got \[\]"),
        ({"quantiles": 0.5}, "quantiles must be a list of numbers"),
        ({"quantiles": ["a"]}, "quantiles must be a list of numbers"),
        ({"distribution": "norml"}, "distribution must be one of 'normal', 'student-t', got 'norml', did you mean"),
        ({"quantiles": [0.5], "distribution": "normal"}, r"cannot both be chosen: got \[0.5\] and 'normal'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        SequenceRegressor(GruBody(2, hidden_size=4), **options)


def test_only_regressors_have_quantiles(x):
    with pytest.raises(ValueError, match=r"quantiles belongs to regressors, got \(0.5,\) for a SequenceClassifier"):
        SequenceClassifier(GruBody(2, hidden_size=4), 3, quantiles=[0.5])
    model = SequenceRegressor(GruBody(2, hidden_size=4), 2, quantiles=[0.5, 0.6]).double()
    with pytest.raises(ValueError, match=r"targets must have the shape \(3, 2\), got \(3, 2, 2\)"):
        model(x, torch.randn(3, 2, 2, dtype=torch.float64))
