"""The whole way of a translator: train, report, translate, score."""

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


def test_a_run_resumes(run, capsys):
    assert main(["train", "--resume", str(run), "--training.epochs", "13"]) == 0
    assert main(["evaluate", str(run)]) == 0
    assert "perplexity" in capsys.readouterr().out
