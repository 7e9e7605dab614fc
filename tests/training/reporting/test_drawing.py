import re
import sys
from xml.etree import ElementTree

import matplotlib
import pytest

from trellisnet.training.reporting.drawing import LIGHT, SERIES, TOOLTIP, chart, has_matplotlib
from trellisnet.training.reporting.pages import TONES

pytestmark = pytest.mark.charts


def fill(axes):
    axes.plot([0, 1], [1, 3], "o-", color=LIGHT["green"], label="a line")
    axes.fill_between([0, 1], [1, 2], color=LIGHT["pink"], gid=TOOLTIP + "an <area>")
    axes.set(xlabel="x", ylabel="y")
    axes.figure.legend(loc="outside lower left")


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    lower, higher = sorted((luminance(one), luminance(other)))
    return (higher + 0.05) / (lower + 0.05)


def test_a_chart_is_accessible_and_has_text():
    root = ElementTree.fromstring(chart("A <title>", 300, 200, fill))
    assert root.get("role") == "img"
    assert root.get("aria-label") == root[0].text == "A <title>"
    assert root.get("viewBox") == "0 0 300 200"
    assert {"A <title>", "a line", "x", "y"} <= {text.text for text in root.findall(".//{*}text")}
    assert "an <area>" in [title.text for title in root.findall(".//{*}g/{*}title")]


def test_all_colours_are_tones():
    svg = chart("Title", 300, 200, fill)
    assert {"green", "pink", "ink", "soft", "line"} <= set(re.findall(r"var\(--(\w+)\)", svg))
    assert not re.search(r"#[0-9a-f]{6}\b", svg)


def test_a_chart_needs_nothing_but_itself():
    for alone in (False, True):
        svg = chart("Title", 300, 200, fill, alone)
        assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r'href="[^#]|url\(|@import|<script', svg)
        assert ("<style>" in svg) == alone


def test_a_file_of_its_own_has_paper_and_both_themes():
    svg = chart("Title", 300, 200, fill, alone=True)
    assert "fill: var(--paper)" in svg
    assert 'width="300" height="200"' in svg
    for light, dark in TONES.values():
        assert light in svg.split("@media")[0]
        assert dark in svg.split("@media")[1]


def test_equal_input_gives_equal_text_whatever_the_users_settings():
    first = chart("Title", 300, 200, fill)
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "axes.titlesize": 3, "lines.linewidth": 9}):
        before = dict(matplotlib.rcParams)
        assert chart("Title", 300, 200, fill) == first
        assert dict(matplotlib.rcParams) == before


def test_charts_of_one_page_share_no_ids():
    ids = [set(re.findall(r' id="([^"]+)"', chart(title, 300, 200, fill))) for title in ("one", "two")]
    assert ids[0]
    assert not ids[0] & ids[1]


@pytest.mark.parametrize("paper", [0, 1], ids=["light", "dark"])
def test_tones_can_be_read_on_their_paper(paper):
    for tone in ("ink", "soft", *SERIES):
        assert contrast(TONES[tone][paper], TONES["paper"][paper]) > (4.5 if tone in ("ink", "soft") else 3.5), tone


def test_a_missing_matplotlib_is_noticed(monkeypatch):
    assert has_matplotlib()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not has_matplotlib()
