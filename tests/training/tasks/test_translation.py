"""The whole way of a translator: train, report, translate, score."""

import io

import pytest
import torch

from trellisnet import Seq2Seq, predict
from trellisnet.cli import main


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model that learned to write words backwards, one word per letter."""
    torch.set_default_dtype(torch.float32)
    folder = tmp_path_factory.mktemp("translation")
    words = ["rot", "blau", "gelb", "alt"]
    pairs = [(f"{a} {b}", f"{b.upper()} {a.upper()}") for a in words for b in words] * 6
    (folder / "pairs.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs))
    flags = {
        "data.options.path": folder / "pairs.tsv",
        "data.options.kind": "words",
        "model.embedding_size": 16,
        "model.hidden_size": 24,
        "model.attention_heads": 2,
        "model.input_dropout": 0,
        "model.hidden_dropout": 0,
        "model.output_dropout": 0,
        "training.epochs": 12,
        "training.batch_size": 8,
        "training.learning_rate": 0.03,
    }
    arguments = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
    assert main(["train", "my-translation", "--to", str(folder / "run"), *arguments]) == 0
    return folder / "run"


def test_it_learns_and_reports(run):
    report = (run / "report.html").read_text()
    assert "Samples" in report
    assert "What each token of the translation reads" in report
    translator = Seq2Seq.from_pretrained(run / "best")
    assert translator.translate(["rot blau", "alt gelb"]) == ["BLAU ROT", "GELB ALT"]
    columns = predict(run, ["gelb rot"])
    assert columns == {"source": ["gelb rot"], "translation": ["ROT GELB"]}


def test_the_command_translates_and_scores(run, tmp_path, capsys):
    pytest.importorskip("sacrebleu", reason="needs the extra 'translation'")
    source, reference, output = tmp_path / "in", tmp_path / "ref", tmp_path / "out"
    source.write_text("rot blau\n\nalt gelb\n")
    reference.write_text("BLAU ROT\n\nGELB ALT\n")
    command = ["translate", str(run), "--input", str(source), "--reference", str(reference)]
    assert main([*command, "--output", str(output)]) == 0
    assert output.read_text() == reference.read_text()
    scores = capsys.readouterr().err
    assert "chrF2 100.00 (" in scores
    assert "BLEU" in scores
    assert "version:" in scores
    assert main([*command, "--output", str(output)]) == 2
    assert "exists already" in capsys.readouterr().err
    reference.write_text("one\n")
    assert main(command) == 2
    assert "must have 3 lines, got 1" in capsys.readouterr().err
    assert main(["translate", str(run), "--input", str(source), "--beams", "0"]) == 2
    assert "beams must be an integer >= 1, got 0" in capsys.readouterr().err


def test_standard_input_and_an_encoder_of_another_body(run, tmp_path, monkeypatch, capsys):
    arguments = ["train", "my-translation", "--data.options.path", str(run.parent / "pairs.tsv"),
                 "--data.options.kind", "words", "--model.hidden_size", "8", "--training.epochs", "1",
                 "--model.encoder", "{name: transformer, heads: 2, window: 9}",
                 "--to", str(tmp_path / "run")]  # fmt: skip
    assert main(arguments) == 0
    translator = Seq2Seq.from_pretrained(tmp_path / "run/last")
    assert type(translator.forward_encoder).__name__ == "TransformerBody"
    assert type(translator.net).__name__ == "TrellisNet"
    capsys.readouterr()
    for content, code, message in (
        ("rot\u2028blau\n\nalt\n".encode(), 0, ""),  # three lines: only a line feed ends one
        (b"\xff\n", 2, "standard input: must be text in UTF-8"),
        (b"", 2, "standard input must have at least one line"),
    ):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
        assert main(["translate", str(run), "--beams", "1"]) == code
        captured = capsys.readouterr()
        assert captured.out.count("\n") == (0 if code else 3)
        assert message in captured.err
    assert main(["translate", str(run), "--input", str(tmp_path / "in"), "--output", "no/folder"]) == 2
    (tmp_path / "in").write_text("rot\n")
    assert main(["translate", str(run), "--input", str(tmp_path / "in"), "--output", "no/folder"]) == 2
    assert "--output must be in a folder that exists, got no/folder" in capsys.readouterr().err


def test_a_run_resumes(run, capsys):
    assert main(["train", "--resume", str(run), "--training.epochs", "13"]) == 0
    assert main(["evaluate", str(run)]) == 0
    assert "perplexity" in capsys.readouterr().out
