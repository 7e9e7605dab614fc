import math
import re
from xml.etree import ElementTree

import pytest

from trellisnet.training.reporting.drawing import SERIES
from trellisnet.training.reporting.figures import Series, heat_map, line_chart, scatter_chart

pytestmark = pytest.mark.charts

INF, NAN = math.inf, math.nan
HARD = {
    "empty": [],
    "one": [(1, 2.0)],
    "constant": [(i, 3.0) for i in range(5)],
    "zero": [(i, 0.0) for i in range(5)],
    "nearly constant": [(0, 1.0), (1, 1.0 + 1e-15)],
    "no number": [(0, NAN), (1, NAN)],
    "one number": [(0, NAN), (1, 1.0), (2, INF)],
    "holes": [(0, 1.0), (1, NAN), (2, 2.0), (3, -INF), (4, 3.0), (5, 4.0)],
    "huge": [(0, -1.7e308), (1, 1.7e308), (2, 1.0)],
    "large": [(0, -1e99), (1, 1e99)],
    "tiny": [(0, 5e-324), (1, 1e-320)],
    "wide": [(0, 1e-90), (1, 1e90)],
    "negative": [(0, -5.0), (1, -3.0)],
    "one step": [(7, 1.0), (7, 2.0)],
    "long": [(i, math.sin(i / 1000)) for i in range(20000)],
}


def drawing(svg):
    """The parsed figure, and the places of every path that is drawn; markers are drawn where they are used."""
    root = ElementTree.fromstring(svg)
    markers = set(root.findall(".//{*}defs/{*}path"))
    paths = [path.get("d", "") for path in root.iter("{http://www.w3.org/2000/svg}path") if path not in markers]
    places = [[tuple(map(float, place)) for place in re.findall(r"[ML] (\S+) (\S+)", path)] for path in paths]
    return root, places + [[(float(use.get("x")), float(use.get("y")))] for use in root.findall(".//{*}use")]


def line(svg, tone="blue"):
    """The longest path of a tone."""
    paths = [path for path in drawing(svg)[0].findall(".//{*}path") if f"stroke: var(--{tone})" in path.get("style")]
    return max((path.get("d") for path in paths if "fill: none" in path.get("style")), key=len)


def places(svg):
    return [tuple(map(float, place)) for place in re.findall(r"[ML] (\S+) (\S+)", line(svg))]


def texts(root):
    return ["".join(text.itertext()) for text in root.findall(".//{*}text")]


def assert_sound(svg):
    root, paths = drawing(svg)
    assert not re.search(r"\b(nan|inf)\b", svg)
    _, _, width, height = map(float, root.get("viewBox").split())
    assert all(0 <= x <= width and 0 <= y <= height for path in paths for x, y in path)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("name", HARD)
def test_any_series_gives_a_sound_chart(name, log):
    assert_sound(line_chart("Title", [Series("a", HARD[name])], "step", "loss", log=log))
    assert_sound(line_chart("Title", [Series(other, points) for other, points in HARD.items()], log=log))


@pytest.mark.parametrize("name", HARD)
def test_any_pairs_give_a_sound_scatter(name):
    assert_sound(scatter_chart("Title", HARD[name], "target", "predicted"))


def test_lines_are_interrupted_where_there_is_no_number():
    svg = line_chart("t", [Series("", HARD["holes"])])
    assert line(svg).count("M") == 3
    assert len(drawing(svg)[0].findall(".//{*}use")) == 4  # points alone are seen by their markers


def test_points_are_where_they_belong():
    (x0, y0), (x1, y1), (x2, y2) = places(line_chart("t", [Series("", [(0, 1.0), (5, 3.0), (10, 2.0)])]))
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.02)
    assert y0 - y2 == pytest.approx(y2 - y1, abs=0.02)
    assert y0 > y2 > y1  # upwards is less in SVG


def test_log_scale_has_equal_factors_at_equal_distances():
    (_, y0), (_, y1), (_, y2) = places(line_chart("t", [Series("", [(0, 1.0), (1, 10.0), (2, 100.0)])], log=True))
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.02)


def test_log_scale_needs_more_than_a_small_factor():
    assert "log scale" not in line_chart("t", [Series("", [(0, 57.0), (1, 58.0)])], log=True)


@pytest.mark.parametrize("points", [[(0, 0.0), (1, 10.0)], [(0, -1.0), (1, 10.0)]])
def test_log_scale_needs_positive_values(points):
    assert "log scale" not in line_chart("t", [Series("", points)], log=True)
    assert "log scale" in line_chart("t", [Series("", [(x, y + 2) for x, y in points])], log=True)


def test_long_series_are_short_paths_that_keep_their_extremes():
    points = [(i, math.sin(7 * i)) for i in range(100_000)]
    points[43_210], points[87_654], points[50_000] = (43_210, 9.0), (87_654, -9.0), (50_000, NAN)
    svg = line_chart("t", [Series("a", points)])
    assert len(svg) < 60_000
    assert line(svg).count("M") == 2
    found = places(svg)
    left, width = found[0][0], found[-1][0] - found[0][0]
    highest, lowest = (choose(found, key=lambda place: place[1]) for choose in (min, max))
    assert [(x - left) / width for x, _ in (highest, lowest)] == pytest.approx([0.43210, 0.87654], abs=0.002)
    middle = sorted(y for _, y in found)[len(found) // 2]
    assert min(lowest[1] - middle, middle - highest[1]) > 8 * 0.9 * (lowest[1] - highest[1]) / 18


def test_legend_names_lines_and_lines_differ():
    names = [f"runs/{'long-' * i}name-{i}" for i in range(15)]
    svg = line_chart("t", [Series(name, [(0, 1.0), (1, float(i))]) for i, name in enumerate(names)])
    root, _ = drawing(svg)
    shown = texts(root)
    assert sum(text.startswith("runs/") for text in shown) == 15
    assert names[0] in shown
    assert_sound(svg)
    looks = {re.sub("; stroke-linecap.*", "", path.get("style")) for path in root.findall(".//{*}path")}
    lines = [look for look in looks if re.match(rf"fill: none;.* stroke: var\(--({'|'.join(SERIES)})\)", look)]
    assert len(lines) == 15


def test_lines_without_names_have_no_legend():
    svg = line_chart("t", [Series("", [(0, 1.0)]), Series("one", [(0, 2.0)])])
    assert texts(drawing(svg)[0]).count("one") == 1
    assert 'viewBox="0 0 480 300"' in line_chart("t", [Series("", [(0, 1.0)])])


def test_lines_keep_their_colours_when_told():
    assert f"var(--{SERIES[3]})" in line_chart("t", [Series("a", [(0, 1.0)], colour=3)])


def test_names_are_shown_as_they_are():
    name = '"><script>$x^2$ \N{CJK UNIFIED IDEOGRAPH-65E5}\x00\ud800'
    svg = line_chart("<script>&", [Series(name, [(0, 1.0)])], "<x>", "<y>")
    assert "<script>" not in svg
    shown = '"><script>$x^2$ \N{CJK UNIFIED IDEOGRAPH-65E5}\\x00\\ud800'
    assert {"<script>&", shown, "<x>", "<y>"} <= set(texts(drawing(svg)[0]))


def ticks(points, **options):
    return [text for text in texts(drawing(line_chart("title", [Series("", points)], **options))[0]) if text != "title"]


def test_ticks_are_round_and_few():
    assert ticks([(0, 1.0), (43_000, 5.0)]) == ["0", "10k", "20k", "30k", "40k", "1", "2", "3", "4", "5"]
    assert ticks([(1, 1.0), (3, 5.0)])[:3] == ["1", "2", "3"]
    assert ticks([(7, 1.0), (7, 2.0)])[:2] == ["7", "1.0"]  # no fractions of steps
    assert ticks([(0, 57.0), (1, 680.0)], log=True)[2:4] == ["100", "200"]
    assert ticks([(0, 1e-6), (1, 1.0)], log=True)[2:5] == ["1e\N{MINUS SIGN}06", "1e\N{MINUS SIGN}05", "0.0001"]
    for low, high in [(0, 1), (0.013, 0.87), (-3, 1234), (55.2, 61.9), (1e-9, 3e-9), (0, 3e15)]:
        labels = ticks([(0, low), (1, high)])[2:]
        assert 3 <= len(labels) <= 9
        assert len(set(labels)) == len(labels)
        assert max(map(len, labels)) <= 6


@pytest.mark.parametrize("size", [0, 1, 2, 10, 60])
def test_heat_maps_of_any_size(size):
    labels = [f"class {i}" for i in range(size)]
    counts = [[100 if i == j else (i + j) % 3 for j in range(size)] for i in range(size)]
    svg = heat_map("Confusion", labels, counts, "predicted", "true")
    assert_sound(svg)
    cells = drawing(svg)[0].findall(".//{*}g[{*}title]")
    assert len(cells) == sum(count > 0 for row in counts for count in row)


def test_heat_map_of_classes_that_never_occur():
    assert_sound(heat_map("Confusion", ["a", "<b>"], [[0, 0], [3, 1]], "predicted", "true"))
