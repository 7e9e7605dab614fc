import io

import pytest

from trellisnet import Vocabulary
from trellisnet.cli import main
from trellisnet.models.build import build_language_model


@pytest.fixture(params=["trellis", "lstm"])
def model(request, tmp_path):
    vocabulary = Vocabulary(list("abcdefg"), "characters")
    sizes = {"embedding_size": 4, "hidden_size": 8, "num_layers": 2}
    build_language_model(request.param, 7, vocabulary=vocabulary, **sizes).save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def written(capsys, *arguments):
    assert main(["generate", *arguments, "--tokens", "5", "--temperature", "0"]) == 0
    return capsys.readouterr().out


def test_prompts_come_from_a_flag_a_file_or_standard_input(model, tmp_path, capsys, monkeypatch):
    one, two = (written(capsys, model, "--prompt", prompt) for prompt in ("abc", "g"))
    assert one.startswith("abc")
    assert len(one) == 3 + 5 + 1
    both = f"=== 1 of 2 ===\n{one}=== 2 of 2 ===\n{two}"
    (tmp_path / "prompts.txt").write_text("abc\n\ng\n")
    assert written(capsys, model, "--prompts", str(tmp_path / "prompts.txt")) == both
    monkeypatch.setattr("sys.stdin", io.StringIO("abc\ng"))
    assert written(capsys, model, "--prompt", "-") == both
    monkeypatch.setattr("sys.stdin", io.StringIO("abc\n"))
    assert written(capsys, model, "--prompt", "-", "--device", "cpu") == one


def test_beams_of_several_prompts(model, tmp_path, capsys):
    (tmp_path / "prompts.txt").write_text("abc\ng\n")
    arguments = ["generate", model, "--prompts", str(tmp_path / "prompts.txt"), "--tokens", "5", "--beams", "2"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("=== 1 of 2 ===\nabc")


def test_mistakes_are_answered_in_one_line(model, tmp_path, capsys):
    (tmp_path / "empty.txt").write_text("\n")
    empty, missing = str(tmp_path / "empty.txt"), str(tmp_path / "missing.txt")
    mistakes = {
        ("--prompt", "a", "--prompts", empty): "--prompt and --prompts cannot be given together",
        ("--prompts", empty): "empty.txt must have at least one prompt",
        ("--prompts", missing): "missing.txt",
        ("--device", "warp"): "--device 'warp' cannot be used",
        ("--prompt", "x"): "'x'",
    }
    for arguments, message in mistakes.items():
        assert main(["generate", model, *arguments]) == 2
        printed = capsys.readouterr()
        assert message in printed.err
        assert printed.err.count("\n") == 1
        assert printed.out == ""
