import math
import re
from xml.etree import ElementTree

import pytest

from trellisnet.training.reporting.axes import make_axis
from trellisnet.training.reporting.figures import COLOURS, Series, heat_map, line_chart, scatter_chart, thin

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
    """The parsed figure, and all places that its paths have, by the paths."""
    root = ElementTree.fromstring(svg)
    paths = [path.get("d") for path in root.findall(".//{*}path")]
    return root, [
        [tuple(map(float, place)) for place in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path)] for path in paths
    ]


def texts(root):
    return ["".join(text.itertext()) for text in root.findall(".//{*}text")]


def assert_sound(svg):
    root, paths = drawing(svg)
    assert not re.search(r"\b(nan|inf)\b", svg)
    _, _, width, height = map(float, root.get("viewBox").split())
    assert all(0 <= x <= width and 0 <= y <= height for path in paths for x, y in path)
    assert root.get("role") == "img"
    assert root[0].tag.endswith("title")
    assert root[0].text


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
    line = next(path.get("d") for path in drawing(svg)[0].findall(".//{*}path") if path.get("stroke") == COLOURS[0])
    assert line.count("M") == 3
    assert line.count("h0") == 2  # points alone are seen as dots


def test_points_are_where_they_belong():
    svg = line_chart("t", [Series("", [(0, 1.0), (5, 3.0), (10, 2.0)])])
    _, paths = drawing(svg)
    (x0, y0), (x1, y1), (x2, y2) = paths[2]
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.11)
    assert y0 - y2 == pytest.approx(y2 - y1, abs=0.11)
    assert y0 > y2 > y1  # upwards is less in SVG


def test_log_scale_has_equal_factors_at_equal_distances():
    _, paths = drawing(line_chart("t", [Series("", [(0, 1.0), (1, 10.0), (2, 100.0)])], log=True))
    (_, y0), (_, y1), (_, y2) = paths[2]
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.11)


@pytest.mark.parametrize("points", [[(0, 0.0), (1, 10.0)], [(0, -1.0), (1, 10.0)]])
def test_log_scale_needs_positive_values(points):
    assert "log scale" not in line_chart("t", [Series("", points)], log=True)
    assert "log scale" in line_chart("t", [Series("", [(x, y + 2) for x, y in points])], log=True)


def test_long_series_are_thinned_and_keep_their_extremes():
    points = [(i, 0.0) for i in range(100_000)]
    points[43_210], points[87_654], points[50_000] = (43_210, 9.0), (87_654, -9.0), (50_000, NAN)
    thinned = thin(points)
    assert len(thinned) < 1300
    assert {points[0], points[43_210], points[87_654], points[-1]} <= set(thinned)
    assert points[50_000] in thinned
    assert [x for x, _ in thinned] == sorted({x for x, _ in thinned})
    assert len(line_chart("t", [Series("a", points)])) < 30_000


def test_short_series_are_not_thinned():
    points = [(i, float(i % 7)) for i in range(500)]
    assert thin(points) == points


def test_legend_names_lines_and_lines_differ():
    names = [f"runs/{'long-' * i}name-{i}" for i in range(15)]
    root, _ = drawing(line_chart("t", [Series(name, [(0, 1.0), (1, float(i))]) for i, name in enumerate(names)]))
    shown = texts(root)
    assert sum(text.startswith("runs/") for text in shown) == 15
    assert names[0] in shown
    looks = [(path.get("stroke"), path.get("stroke-dasharray")) for path in root.findall(".//{*}path")]
    assert len({look for look in looks if look[0] in COLOURS}) == 15


def test_lines_keep_their_colours_when_told():
    assert COLOURS[3] in line_chart("t", [Series("a", [(0, 1.0)], colour=3)])


def test_names_are_escaped():
    svg = line_chart("<script>&", [Series('"><script>', [(0, 1.0)])], "<x>", "<y>")
    assert "<script>" not in svg
    assert {"<script>&", '"><script>', "<x>", "<y>"} <= set(texts(drawing(svg)[0]))


def test_ticks_are_round_and_few():
    for low, high in [(0, 1), (0.013, 0.87), (-3, 1234), (55.2, 61.9), (1e-9, 3e-9), (0, 3e15)]:
        ticks = make_axis([low, high]).ticks
        assert 3 <= len(ticks) <= 9
        labels = [label for _, label in ticks]
        assert len(set(labels)) == len(labels)
        assert max(map(len, labels)) <= 6
    assert [label for _, label in make_axis([1, 3], steps=True).ticks] == ["1", "2", "3"]
    assert [label for _, label in make_axis([57, 680], log=True).ticks] == ["100", "200", "500"]


@pytest.mark.parametrize("size", [0, 1, 2, 10, 60])
def test_heat_maps_of_any_size(size):
    labels = [f"class {i}" for i in range(size)]
    counts = [[100 if i == j else (i + j) % 3 for j in range(size)] for i in range(size)]
    svg = heat_map("Confusion", labels, counts, "predicted", "true")
    assert_sound(svg)
    cells = [rect for rect in drawing(svg)[0].findall(".//{*}rect") if rect.get("fill") != "none"]
    assert len(cells) == sum(count > 0 for row in counts for count in row)


def test_heat_map_of_classes_that_never_occur():
    assert_sound(heat_map("Confusion", ["a", "<b>"], [[0, 0], [3, 1]], "predicted", "true"))
