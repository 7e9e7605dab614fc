import io
import re
import sys

import pytest

from trellisnet.cli import main
from trellisnet.commands.compare import compare
from trellisnet.data.kinds import KINDS
from trellisnet.training.config import About, Config, DataConfig, TrainingConfig, model_config
from trellisnet.training.runs import Run

pytestmark = pytest.mark.charts


def make_run(folder, metric="perplexity", value=60.0, finished=True, dataset="ptb-word"):
    model = model_config("trellis", KINDS[dataset])(hidden_size=8, num_layers=2)
    config = Config(About("", metric, 56.97, 24.0), DataConfig(name=dataset), model, TrainingConfig(epochs=3))
    run = Run.create(config, "run", folder)
    for epoch in (1, 2, 3) if finished else (1,):
        run.add_metrics({"epoch": epoch - 1, "step": 10 * epoch, "loss": 5 / epoch, "learning_rate": 0.1})
        run.add_metrics({"epoch": epoch, "step": 10 * epoch, "valid": {metric: value * (1 + abs(epoch - 2))}})
    if finished:
        metrics = {"valid": {metric: value}, "test": {metric: value + 1}}
        run.write_json("result.json", {"metrics": metrics, "protocol": "p", "parameters": 1_234_567})
    run.release()
    return str(folder)


def table(printed):
    return [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines()]


def test_table(tmp_path, capsys):
    runs = [make_run(tmp_path / "one"), make_run(tmp_path / "[red]two", value=70.0, finished=False)]
    assert main(["compare", *runs]) == 0
    printed = capsys.readouterr()
    assert table(printed.out) == [
        ["run", "dataset", "parameters", "epochs", "metric", "best valid", "test", "paper"],
        ["one", "ptb-word", "1.23 M", "3", "perplexity", "60.00", "61.00", "56.97"],
        ["[red]two", "ptb-word", "-", "1 of 3", "perplexity", "140.00", "-", "56.97"],
    ]
    assert printed.err == ""


def test_the_best_accuracy_is_the_highest(tmp_path, capsys):
    compare([make_run(tmp_path / "run", "accuracy", 0.25)])
    assert "50.00 %" in table(capsys.readouterr().out)[1]


def test_table_on_a_terminal(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    runs = [make_run(tmp_path / "[red]one")]
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", Terminal())
    compare(runs)
    assert "[red]one" in sys.stdout.getvalue()
    assert "━" in sys.stdout.getvalue()


@pytest.mark.parametrize("where", ["before", "between", "after", "with ="])
def test_plot(tmp_path, capsys, where):
    one, two = make_run(tmp_path / "one"), make_run(tmp_path / "<two>", value=70.0)
    plot = str(tmp_path / "curves.html")
    arguments = {
        "before": ["--plot", plot, one, two],
        "between": [one, "--plot", plot, two],
        "after": [one, two, "--plot", plot],
        "with =": [one, f"--plot={plot}", two],
    }[where]
    assert main(["compare", *arguments]) == 0
    content = (tmp_path / "curves.html").read_text(encoding="utf-8")
    assert f"curves: {plot}" in capsys.readouterr().out
    assert "2 runs compared" in content
    assert content.count("<svg") == 2
    assert content.count("&lt;two&gt;</text>") == 2  # in both legends
    assert "<two>" not in content


def test_different_metrics_are_told_and_shown(tmp_path, capsys):
    runs = [make_run(tmp_path / "one"), make_run(tmp_path / "two", "accuracy", 0.2, dataset="seq-mnist")]
    plot = tmp_path / "curves.html"
    assert main(["compare", *runs, "--plot", str(plot)]) == 0
    printed = capsys.readouterr()
    assert len(table(printed.out)) == 4
    assert "differ in metric (accuracy / perplexity), dataset (ptb-word / seq-mnist)" in printed.err
    content = plot.read_text(encoding="utf-8")
    assert content.count("<svg") == 3  # two metrics and the loss
    assert "differ in metric" in content


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path, capsys):
    runs = [make_run(tmp_path / "a" / "run"), make_run(tmp_path / "b" / "run")]
    compare(runs)
    assert [row[0] for row in table(capsys.readouterr().out)[1:]] == runs


def test_runs_whose_names_look_like_values(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["1", "null", "[x", "a b, c"]
    for name in names:
        make_run(tmp_path / name)
    assert main(["compare", *names]) == 0
    assert [row[0] for row in table(capsys.readouterr().out)[1:]] == names


def test_run_without_metrics(tmp_path, capsys):
    config = Config(model=model_config("trellis", "text")(hidden_size=8, num_layers=2))
    Run.create(config, "run", tmp_path / "run").release()
    compare([str(tmp_path / "run")], plot=str(tmp_path / "curves.html"))
    assert table(capsys.readouterr().out)[1] == ["run", "python-library", "-", "0 of 10", "-", "-", "-", "-"]
    assert "nothing to show yet" in (tmp_path / "curves.html").read_text()


def test_mistakes_are_answered_in_one_line(tmp_path, capsys):
    (tmp_path / "old.html").touch()
    run = make_run(tmp_path / "run")
    mistakes = {
        (): "the following arguments are required: runs",
        (str(tmp_path),): "is not a run",
        (str(tmp_path / "missing"), run): "is not a run",
        (run, "--plot", str(tmp_path / "curves.png")): "must end with .html",
        (run, "--plot", str(tmp_path / "no" / "curves.html")): "does not exist",
        (run, "--plot"): "expected one argument",
        (run, "--plt", "x.html"): "unknown flag --plt, did you mean '--plot'?",
        (run, "--plot", str(tmp_path / "old.html")): "--plot must be a new file",
    }
    for arguments, message in mistakes.items():
        assert main(["compare", *arguments]) == 2
        printed = capsys.readouterr()
        assert message in printed.err
        assert len(printed.err.splitlines()) == 1
        assert printed.out == ""


def test_plot_without_matplotlib_names_the_extra_before_anything_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run, plot = make_run(tmp_path / "run"), tmp_path / "curves.html"
    assert main(["compare", run, "--plot", str(plot)]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.endswith(f"--plot {plot}: figures need matplotlib: pip install 'trellisnet[plots]'")
    assert printed.out == ""
    assert not plot.exists()
    assert main(["compare", run]) == 0


def test_help_shows_how_runs_are_named(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--help"])
    assert ended.value.code == 0
    assert "usage: trellisnet compare [--KEY VALUE ...] RUN [RUN ...]" in capsys.readouterr().out
