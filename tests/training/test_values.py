from collections.abc import Sequence
from typing import Literal

import pytest

from trellisnet.training.values import from_text, load_yaml, typed

GOOD = [
    (int, "8", 8),
    (float, "1e-3", 0.001),
    (float, "2", 2.0),
    (bool, "false", False),
    (bool | None, "null", None),
    (str, "8", "8"),
    (str, "null", "null"),
    (str | None, "null", None),
    (int | Sequence[int], "[1, 2]", [1, 2]),
    (list[tuple[float, int]], "[[0.5, 3]]", [(0.5, 3)]),
    (list[tuple[float, int | tuple[int, int]]], "[[0.5, 3], [1, [1, 4]]]", [(0.5, 3), (1.0, (1, 4))]),
    (Literal["sgd", "adam"], "adam", "adam"),
]
BAD = [
    (int, "8.0", "an integer, got 8.0"),
    (int, "many", "an integer, got 'many'"),
    (int, "'8'", "an integer, got '8'"),
    (int, "[", r"an integer, got '\['"),
    (list[str], "3", "a list of texts, got 3"),
    (dict[str, int], "a", "a mapping, got 'a'"),
    (bool, "yes", "true or false, got 'yes'"),
    (bool, "1", "true or false, got 1"),
    (Sequence[int] | None, "3", "a list of integers or null, got 3"),
    (Literal["sgd", "adam"], "adma", r"one of 'sgd', 'adam', got 'adma', did you mean 'adam'\?"),
]


@pytest.mark.parametrize(("hint", "text", "value"), GOOD)
def test_the_text_of_a_flag_is_read_as_its_type(hint, text, value):
    read = from_text("--x", hint, text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(("hint", "text", "message"), BAD)
def test_a_wrong_text_is_named(hint, text, message):
    with pytest.raises(ValueError, match=f"--x must be {message}"):
        from_text("--x", hint, text)


def test_a_value_is_not_changed_while_it_is_checked():
    value = ["1", 2]
    with pytest.raises(ValueError, match="must be"):
        typed("x", list[int], value)
    assert value == ["1", 2]


def test_only_true_and_false_are_booleans_in_yaml():
    text = "{a: yes, b: on, c: true, d: False, e: 1e-3, f: 2.5, g: -3, h: .5}"
    expected = {"a": "yes", "b": "on", "c": True, "d": False, "e": 0.001, "f": 2.5, "g": -3, "h": 0.5}
    assert load_yaml(text) == expected
