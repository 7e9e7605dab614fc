"""The committed figures and tables of the documentation are those that its code makes."""

import importlib
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.charts

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture
def make(monkeypatch):
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(DOCS / "figures"))
    yield importlib.import_module("make")
    for name in set(sys.modules) - before:  # short names that must not hide others
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(DOCS)):
            del sys.modules[name]


def test_the_figures_are_those_that_the_code_draws(make, tmp_path):
    make.write_figures(tmp_path)
    drawn = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_bytes() for path in (DOCS / "images").glob("*.svg")}
    assert sorted(drawn) == sorted(committed)
    different = [name for name in drawn if drawn[name] != committed[name]]
    assert not different, "run `python docs/figures/make.py`"


def test_the_figures_need_nothing_but_themselves():
    for path in (DOCS / "images").glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        ElementTree.fromstring(text)
        assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert "<script" not in text


def test_every_figure_is_shown_and_every_image_exists():
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md"]
    shown = {name for page in pages for name in _images(page.read_text(encoding="utf-8"))}
    assert shown == {path.name for path in (DOCS / "images").glob("*.svg")}


def _images(text):
    return [part.split(".svg")[0] + ".svg" for part in text.split("images/")[1:] if ".svg" in part.split(")")[0]]


def test_the_tables_are_those_of_the_measurements(make):
    for name in make.PAGES:
        page = (DOCS / name).read_text(encoding="utf-8")
        assert make.tables.filled(page) == page, "run `python docs/figures/make.py`"


def test_a_cone_is_drawn_as_it_is_computed(make):
    grid = sys.modules["grid"]
    plan = grid.plan_of(20, 1, [1, 1, 2, 4, 8])
    assert len(grid.cells(plan)) == plan.cells == 31
    for (level, step), (below, earlier) in grid.reads(plan):
        assert below == level - 1
        assert step - earlier in (0, plan.layers[below].dilation)


def test_ablations_have_their_places(make, tmp_path):
    def entry(name, paper, values):
        mean = None if not values else sum(values) / len(values)
        found = {"values": values, "mean": mean, "spread": 1.0 if len(values) > 1 else None}
        return {"name": name, "title": f"with {name}", "paper": paper, "steps": [9] * len(values), "test": found}

    entries = [
        entry("full", 50, [90.0, 92.0]),
        entry("a", 51, [80.0]),
        entry("b", 53, [95.0, 97.0]),
        entry("c", 60, []),
    ]
    (tmp_path / "ablations.json").write_text(json.dumps({"ablations": entries}))
    full, b, a = make.tables.ablations(tmp_path / "ablations.json").splitlines()[3:]
    assert full == "| with full | 9 | 91.0 ± 1.0 |  |  |  |  |"
    assert b == "| with b | 9 | 96.0 ± 1.0 | +5.0 | 1 | +3.00 | 1 |"
    assert a == "| with a | 9 | 80.0 | -11.0 | 2 | +1.00 | 2 |"
