import pytest

from trellisnet.commands.arguments import parse, split


def command(first: str, rest: list[str], *, width: int = 3, to: str) -> None:
    """Do something.

    In a longer way.

    Args:
        first: one word.
        rest: further words.
        width: a number.
        to: a folder.
    """


def test_positionals_and_flags_come_in_any_order():
    expected = {"first": "1", "rest": ["null", "[x"], "width": 5, "to": "a"}
    for arguments in (
        ["1", "null", "[x", "--width", "5", "--to", "a"],
        ["--width=5", "--to=a", "1", "null", "[x"],
        ["1", "--width", "5", "null", "--to", "a", "[x"],
        ["1", "--width", "4", "null", "--to", "a", "[x", "--width=5"],  # the last one counts
    ):
        assert parse("command", command, arguments) == expected


def test_values_may_look_like_anything():
    assert split(["--prompt", "-", "--limit", "-5", "--x=--y", "--z=a=b"]) == (
        [("prompt", "-"), ("limit", "-5"), ("x", "--y"), ("z", "a=b")],
        [],
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--to"], "--to needs a value: expected one argument, got nothing"),
        (["a", "--to", "--width", "3"], "--to needs a value: expected one argument, got --width"),
        (["a", "b", "--to", "c", "--widht", "3"], "unknown flag --widht, did you mean '--width'?"),
        (["a", "b", "--to", "c", "--width", "x"], "width"),
        (["a", "b"], "required: to"),
        (["a", "--to", "c"], "required: rest"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(Exception, match=message.replace("?", r"\?")):
        parse("command", command, arguments)


def test_help_is_made_of_signature_and_docstring(capsys):
    with pytest.raises(SystemExit) as ended:
        parse("command", command, ["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: trellisnet command [--KEY VALUE ...] FIRST REST [REST ...] --to TO\n")
    told = " ".join(out.split())
    assert "Do something. In a longer way." in told
    assert "--width WIDTH a number. (type: int, default: 3)" in told
