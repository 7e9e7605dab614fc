import html
import math
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from trellisnet.training.config import About, Config, DataConfig, TrainingConfig, model_config
from trellisnet.training.reporting.report import write_report
from trellisnet.training.runs import Run

pytestmark = pytest.mark.charts

COMMAND = ["__main__.py", "train", "word-ptb", "--training.epochs", "4", "--data.options", "{path: my text}"]
METRICS = {"valid": {"loss": 4.1, "perplexity": 60.34}, "test": {"loss": 4.07, "perplexity": 58.56}}
RESULT = {"metrics": METRICS, "protocol": "exact streaming: every token <once>", "parameters": 24_310_000}
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
VOID = {"meta", "br", "img", "input", "link", "hr"}


class Balanced(HTMLParser):
    """Fails if a tag is not closed where it should be."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)


def make_run(folder, about=None, epochs=4, done=4, **training):
    about = About("Word-level PTB", "perplexity", 56.97, 24.0) if about is None else about
    model = model_config("trellis", "text")(hidden_size=256, num_layers=8)
    config = Config(about, DataConfig(name="ptb-word"), model, TrainingConfig(epochs=epochs, **training))
    run = Run.create(config, "word-ptb", folder)
    run.write_json("environment.json", {"command": COMMAND, "python": "3.11", "torch": "2.8", "git": None})
    for step in range(1, 50 * done + 1):
        run.add_metrics(
            {"epoch": step // 50, "step": step, "loss": 4 + 3 / step, "learning_rate": 20 / (1 + step // 99)}
        )
        if step % 50 == 0:
            metrics = {"loss": 4 + 5 / step, "perplexity": math.exp(4 + 5 / step)}
            run.add_metrics({"epoch": step // 50, "step": step, "valid": metrics})
    run.release()
    return run


def report(run):
    path = write_report(run)
    assert path == run.folder / "report.html"
    content = path.read_text(encoding="utf-8")
    parser = Balanced()
    parser.feed(content)
    assert parser.open == []
    assert "script" not in parser.seen
    assert not re.search(r"\bsrc=|\bhref=\"[^#]|url\(|@import", content)  # nothing from elsewhere
    ids = re.findall(r'\bid="([^"]+)"', content)
    assert len(set(ids)) == len(ids)
    return content


def finish(run, **further):
    run.add_metrics({"epoch": 4, "step": 200, "best": METRICS})
    run.write_json("result.json", {**RESULT, **further})


def rows(content):
    found = re.findall(r"<tr>(.*?)</tr>", content)
    return [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in found]


def test_finished_run(tmp_path):
    run = make_run(tmp_path / "word-ptb-1")
    finish(run)
    content = report(run)
    assert "<h1>Word-level PTB</h1>" in content
    assert "word-ptb-1: a trellis network on ptb-word, 200 steps in 4 epochs; test perplexity 58.56." in content
    assert ["perplexity", "60.34", "58.56", "56.97"] in rows(content)
    assert ["loss", "4.1", "4.07", "-"] in rows(content)
    assert ["parameters", "", "24.31 M", "24 M"] in rows(content)
    assert "exact streaming: every token &lt;once&gt;" in content
    assert content.count("<svg") == 3
    assert "the paper, test" in content
    assert "after epoch 4" in content
    assert "hidden_size: 256" in content
    assert ["git", "-"] in rows(content)
    assert "<details>" in content
    assert html.escape("trellisnet train word-ptb --training.epochs 4 --data.options '{path: my text}'") in content
    assert "--resume" not in content


def test_report_is_replaced_and_leaves_nothing_else(tmp_path):
    run = make_run(tmp_path / "run")
    first = report(run)
    before = sorted(path.name for path in run.folder.iterdir())
    finish(run)
    assert report(run) != first
    assert sorted(path.name for path in run.folder.iterdir()) == sorted([*before, "result.json"])


def test_opened_runs_have_the_same_report(tmp_path):
    run = make_run(tmp_path / "run")
    assert report(run) == report(Run.open(run.folder))


def test_unfinished_run(tmp_path):
    content = report(make_run(tmp_path / "run", epochs=10, done=2))
    assert "not finished: 100 steps, 2 of 10 epochs; best validation perplexity 57.40." in content
    assert ["perplexity", "57.40", "-", "56.97"] in rows(content)
    assert f"trellisnet train --resume {tmp_path / 'run'}" in content


def test_run_without_metrics(tmp_path):
    run = make_run(tmp_path / "run", About(), done=0)
    (run.folder / "environment.json").unlink()
    content = report(run)
    assert "<h1>run</h1>" in content
    assert "Nothing has been measured yet" in content
    assert "<svg" not in content
    assert "Environment" not in content


def test_metric_is_guessed_where_the_recipe_has_none(tmp_path):
    run = make_run(tmp_path / "run", About())
    finish(run)
    assert "Validation perplexity" in report(run)


def test_choosing_by_the_test_split_is_told(tmp_path):
    run = make_run(tmp_path / "run")
    finish(run)
    assert "no validation split" not in report(run)
    finish(run, metrics={"test": METRICS["test"]})
    assert "no validation split" in report(run)


def test_numbers_that_are_none(tmp_path):
    run = make_run(tmp_path / "run", done=1)
    for epoch, value in enumerate([math.nan, math.inf, 1e300], 2):
        run.add_metrics({"epoch": epoch, "step": 50 * epoch, "loss": value, "learning_rate": 0.0})
        run.add_metrics({"epoch": epoch, "step": 50 * epoch, "valid": {"loss": value, "perplexity": value}})
    content = report(run)
    assert "after epoch 1" in content
    charts = re.findall("<svg.*?</svg>", content, flags=re.DOTALL)
    assert len(charts) == 3
    assert not re.search(r'[ ="](nan|inf)\b', "".join(charts))


DEPTHS = {str(depth): {"loss": 4.0, "perplexity": 60 + 30 / depth} for depth in (1, 2, 4)}


def test_quality_over_depth(tmp_path):
    run = make_run(tmp_path / "run", depths=[(0.5, 3), (1, (1, 2))])
    finish(run)
    assert "Quality over depth" not in report(run)
    run.add_metrics({"epoch": 4, "step": 200, "best": METRICS, "depths": DEPTHS})
    content = report(run)
    assert content.count("<svg") == 4
    assert "Validation perplexity over depth" in content
    assert "Trained at depths 1 to 2, drawn anew for every step." in content
    found = rows(content)
    start = found.index(["depth", "perplexity"])
    assert found[start + 1 : start + 4] == [["1", "90.00"], ["2", "75.00"], ["4", "67.50"]]


def test_iterations_of_a_model_that_converges(tmp_path):
    run = make_run(tmp_path / "run", epochs=6)
    assert "Iterations per call" not in report(run)
    for epoch, (mean, most) in enumerate([(12.5, 30.0), (9.25, 17.0)], start=5):
        valid = {"perplexity": 60.0, "iterations": mean, "most_iterations": most}
        run.add_metrics({"epoch": epoch, "step": 50 * epoch, "valid": valid})
    finish(run, metrics={"valid": METRICS["valid"] | {"iterations": 9.25, "most_iterations": 17.0}})
    content = report(run)
    assert "Iterations per call" in content
    found = rows(content)
    assert next(row for row in found if row[0] == "iterations")[1] == "9.25"
    assert next(row for row in found if row[0] == "most_iterations")[1] == "17"


def test_samples_are_shown_as_they_are(tmp_path):
    run = make_run(tmp_path / "run", About("<i>title</i>", "perplexity"))
    text = "\n<script>alert('x')</script></pre>\x00\x1b[31m\r\ud800 \u202e end\n"
    finish(run, samples=[{"prompt": "<b>the", "text": text}, {"prompt": "", "text": ""}])
    content = report(run)
    assert "<script" not in content
    assert "&lt;b&gt;the" in content
    assert "<pre>\n\n&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&lt;/pre&gt;\\x00\\x1b[31m\\x0d\\ud800" in content
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", content)


def test_confusion_matrix(tmp_path):
    run = make_run(tmp_path / "run", About("MNIST", "accuracy", 0.9813))
    metrics = {"valid": {"accuracy": 0.5}, "test": {"accuracy": 0.25}}
    finish(run, metrics=metrics, confusion={"labels": [0, "<one>"], "counts": [[5, 1], [0, 9]]})
    content = report(run)
    assert ["accuracy", "50.00 %", "25.00 %", "98.13 %"] in rows(content)
    assert "true 0, predicted &lt;one&gt;: 1 (16.7%)" in content


def test_confusion_matrix_of_too_many_classes(tmp_path):
    run = make_run(tmp_path / "run")
    finish(run, confusion={"labels": list(range(200)), "counts": [[1] * 200] * 200})
    assert "200 classes are too many to draw" in report(run)


def test_predictions(tmp_path):
    run = make_run(tmp_path / "run", About("Adding", "mse"))
    finish(run, predictions={"target": [0.0, 1.0, 2.0], "predicted": [0.1, math.nan, 1.9]})
    assert "Predictions against targets" in report(run)


def test_parts_of_the_loss_have_a_chart_if_there_are_several(tmp_path):
    run = make_run(tmp_path / "run")
    for step in range(1, 4):
        run.add_metrics({"epoch": 4, "step": 200 + step, "loss": 4.0, "parts": {"main": 4.0}})
    assert "Parts of the training loss" not in report(run)
    run.add_metrics({"epoch": 4, "step": 204, "loss": 4.5, "parts": {"main": 4.0, "<aux>": 0.5}})
    content = report(run)
    assert content.count("<svg") == 4
    assert "Parts of the training loss" in content
    assert re.search(">main</text>.*>&lt;aux&gt;</text>", content, flags=re.DOTALL)


def test_without_matplotlib_the_report_has_its_tables_and_says_how_to_get_figures(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run = make_run(tmp_path / "run")
    finish(run, confusion={"labels": [0, 1], "counts": [[5, 1], [0, 9]]}, predictions={"target": [], "predicted": []})
    run.add_metrics({"epoch": 4, "step": 200, "depths": DEPTHS})
    content = report(run)
    assert "<svg" not in content
    assert content.count("The figures need matplotlib: pip install &#x27;trellisnet[plots]&#x27;") == 1
    assert ["perplexity", "60.34", "58.56", "56.97"] in rows(content)
    assert ["4", "67.50"] in rows(content)
    assert "Confusion matrix" not in content


def test_command_with_a_run_folder_says_to_choose_another(tmp_path):
    run = make_run(tmp_path / "run")
    run.write_json("environment.json", {"command": ["trellisnet", "train", "demo", "--to=here"]})
    content = report(run)
    assert "trellisnet train demo --to=here" in content
    assert "--to must name a new folder" in content


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_report_in_a_browser(tmp_path):
    run = make_run(tmp_path / "run")
    samples = [{"prompt": "a", "text": "<script>document.title = 'broken'</script>\x00"}]
    finish(run, samples=samples, confusion={"labels": ["a", "b"], "counts": [[5, 1], [0, 9]]})
    write_report(run)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    flags += [f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom", (run.folder / "report.html").as_uri()]
    told = subprocess.run([BROWSER, *flags], capture_output=True, text=True, encoding="utf-8", timeout=60, check=True)
    assert "CONSOLE" not in told.stderr
    assert "<title>Word-level PTB</title>" in told.stdout
    charts = re.findall(r"<svg.*?</svg>", told.stdout, flags=re.DOTALL)
    assert len(charts) == 4
    for chart in charts[:3]:
        width, height = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"', chart).groups())
        path = max(re.findall(r'<path d="([^"]+)"', chart), key=lambda path: path.count("L"))
        places = re.findall(r"[ML] ([\d.]+) ([\d.]+)", path)
        assert len(places) >= 4
        assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in places)
