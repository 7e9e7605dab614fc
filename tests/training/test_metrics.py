import pytest

from trellisnet.training.metrics import ACCURACY, BITS, LOSS, MAE, MSE, PERPLEXITY, STANDARD, Metric


def test_higher_is_better_only_where_it_is_said():
    assert ACCURACY.judged(0.9) < ACCURACY.judged(0.8)
    for metric in (MSE, MAE, PERPLEXITY, BITS, LOSS):
        assert metric.judged(0.8) < metric.judged(0.9)


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        (ACCURACY, 0.98134, "98.13 %"),
        (PERPLEXITY, 1234.5, "1,234.50"),
        (PERPLEXITY, float("inf"), "inf"),
        (BITS, 1.5014, "1.501"),
        (MSE, 0.000123456, "0.0001235"),
        (Metric("error rate", percent=True, decimals=1), 0.1234, "12.3 %"),
    ],
)
def test_values_have_the_format_of_the_metric(metric, value, text):
    assert metric.formatted(value) == text


def test_axes():
    assert ACCURACY.axis == "accuracy, %"
    assert ACCURACY.scaled(0.5) == 50
    assert PERPLEXITY.axis == "perplexity"
    assert PERPLEXITY.scaled(0.5) == 0.5
    assert {name for name, metric in STANDARD.items() if metric.logarithmic} == {"perplexity", "mse", "mae"}
