import pytest
import torch
from torch import nn

from trellisnet import TrellisLM
from trellisnet.models.bodies import BODIES
from trellisnet.models.build import build_classifier, build_language_model
from trellisnet.models.sizing import width_for


def options(body):
    """Four layers for a trellis; one head for an xLSTM, whose widths otherwise lie 9 % of the smaller budget apart."""
    return {"num_layers": 4} if body.endswith("trellis") else {"heads": 1} if body == "xlstm" else {}


def classifier(body):
    return lambda width: build_classifier(body, 3, 10, hidden_size=width, **options(body))


def language_model(body):
    return lambda width: build_language_model(body, 500, 32, hidden_size=width, **options(body))


@pytest.mark.parametrize("make", [classifier, language_model])
@pytest.mark.parametrize("budget", [0.2e6, 0.7e6])
@pytest.mark.parametrize("body", BODIES)
def test_every_body_meets_a_budget(body, budget, make):
    build = make(body)
    size = sum(parameter.numel() for parameter in build(width_for(build, budget)).parameters())
    assert size == pytest.approx(budget, rel=0.03)


def linear(width, multiple=1, smallest=1):
    if width % multiple or width < smallest:
        raise ValueError(f"hidden_size must be a multiple of {multiple} and at least {smallest}, got {width}")
    return nn.Linear(width, 10, bias=False)


@pytest.mark.parametrize(("multiple", "smallest"), [(1, 1), (3, 1), (7, 300), (24, 400), (100, 100), (1, 999)])
@pytest.mark.parametrize("budget", [10_000, 20_500, 123_456])
def test_the_nearest_width_that_can_be_built_is_found(multiple, smallest, budget):
    widths = [width for width in range(1, 20_000) if width % multiple == 0 and width >= smallest]
    nearest = min(widths, key=lambda width: abs(10 * width - budget))
    if abs(10 * nearest - budget) <= 0.03 * budget:
        found = width_for(lambda width: linear(width, multiple, smallest), budget)
        assert abs(10 * found - budget) == abs(10 * nearest - budget)
    else:
        with pytest.raises(ValueError, match="cannot be met"):
            width_for(lambda width: linear(width, multiple, smallest), budget)


@pytest.mark.parametrize(
    ("options", "budget", "message"),
    [
        (
            {"smallest": 50},
            400,
            r"parameters = 400 cannot be met: the smallest .* is 500 \(hidden_size=50\)",
        ),
        ({"multiple": 20}, 300, r"within 3%: the nearest sizes are 200 \(hidden_size=20\) and 400 \(hidden_size=40\)"),
        ({"smallest": 2**21}, 400, "hidden_size must be a multiple of 1 and at least 2097152, got"),
        ({}, 0, "parameters must be a number > 0, got 0"),
    ],
)
def test_a_budget_that_cannot_be_met_is_named(options, budget, message):
    with pytest.raises(ValueError, match=message):
        width_for(lambda width: linear(width, **options), budget)


def test_the_tied_output_is_the_smallest_width():
    with pytest.raises(ValueError, match=r"the smallest possible size is .* \(hidden_size=400\)"):
        width_for(lambda width: TrellisLM(1000, 400, width, 4), 0.5e6)


def test_no_random_numbers_are_drawn():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    width_for(classifier("trellis"), 0.1e6)
    assert torch.rand(1) == expected
