"""A cell drawn as a graph: from the gates and the memory on the left to the hidden state on the right."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from trellisnet.core.cells.definition import Definition
from trellisnet.core.cells.expressions import MEMORY, Node
from trellisnet.training.reporting.drawing import LIGHT, chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, ROW, MARGIN = 480.0, 44.0, 70.0
SIGNS = {"sigmoid": "σ", "complement": "1\u2212", "sum": "+", "product": "×"}  # noqa: RUF001 (the sign, not a letter)
OLD, NEW, HIDDEN = "m before", "m", "h"

Graph = dict[str, tuple[str, ...]]  # what every box reads, by its key; arguments come first


def cell_graph(cell: Definition) -> str:
    """The graph of a cell as SVG. Equal subexpressions are one box."""
    labels, graph = boxes(cell)
    routed = with_bends(graph, columns(graph))
    places = positions(routed, columns(routed))
    rows = max(y for _, y in places.values()) + 1

    def fill(axes: Axes) -> None:
        for key, reads in routed.items():
            for each in reads:
                style = {"arrowstyle": "-|>" if key in labels else "-", "color": LIGHT["soft"], "linewidth": 1.1}
                ends = {"shrinkA": 0, "shrinkB": _half(labels.get(key, ""))}  # boxes cover where a line begins
                axes.annotate("", places[key], places[each], arrowprops={**style, **ends})
        for key, label in labels.items():
            tone = "blue" if not graph[key] else "orange" if key in (NEW, HIDDEN) else "ink"
            box = {"boxstyle": "round,pad=0.35", "facecolor": LIGHT["paper"], "edgecolor": LIGHT[tone]}
            axes.text(*places[key], label, ha="center", va="center", color=LIGHT[tone], fontsize=11, bbox=box)
        axes.set_xlim(-0.5, max(x for x, _ in places.values()) + 0.5)
        axes.set_ylim(-0.6, rows - 0.4)
        axes.set_axis_off()

    return chart(cell.name, WIDTH, MARGIN + ROW * rows, fill)


def _half(label: str) -> float:
    """Half the width of a box, in points; 0 where a line bends."""
    return 7 + 3.4 * len(label) if label else 0


def boxes(cell: Definition) -> tuple[dict[str, str], Graph]:
    """The label of every box, and what it reads. The new memory is old x factor + offset."""
    labels, graph = dict[str, str](), Graph()

    def add(key: str, label: str, *reads: str) -> str:
        labels.setdefault(key, label)
        graph.setdefault(key, reads)
        return key

    def visit(node: Node) -> str:
        if node == Node(MEMORY):
            return NEW
        reads = [visit(each) for each in node.args]
        return add(str(node), SIGNS.get(node.name, node.name), *reads)

    factor = visit(cell.factor)
    kept = add("kept", SIGNS["product"], factor, add(OLD, OLD))
    add(NEW, f"{SIGNS['sum']} → m", kept, visit(cell.offset))
    add(HIDDEN, HIDDEN, visit(cell.hidden))
    return labels, graph


def columns(graph: Graph) -> dict[str, int]:
    """The column of every box: right of all that it reads; a leaf just left of the first box that reads it."""
    found: dict[str, int] = {}
    for key, reads in graph.items():
        found[key] = 1 + max((found[each] for each in reads), default=-1)
    for key in graph:
        readers = [found[user] for user, reads in graph.items() if key in reads]
        if not graph[key] and readers:
            found[key] = min(readers) - 1
    return found


def with_bends(graph: Graph, column: dict[str, int]) -> Graph:
    """The graph with a bend in every column that a line passes, so that no line passes behind a box."""
    routed = Graph()
    for key, reads in graph.items():
        last = []
        for each in reads:
            before = each
            for x in range(column[each] + 1, column[key]):
                bend = f"{each} at {x}"  # lines from one box stay together as long as possible
                routed.setdefault(bend, (before,))
                before = bend
            last.append(before)
        routed[key] = tuple(last)
    return routed


def positions(graph: Graph, column: dict[str, int]) -> dict[str, tuple[float, float]]:
    """The column and row of every box: rows near the mean of those that it is connected to."""
    inside = [[key for key in graph if column[key] == x] for x in range(max(column.values()) + 1)]
    tallest = max(map(len, inside))
    readers = {key: [user for user, reads in graph.items() if key in reads] for key in graph}
    row: dict[str, float] = {}
    for sweep in range(5):  # from left to right, then from right to left, and again
        near = graph if sweep % 2 == 0 else readers
        for keys in inside if sweep % 2 == 0 else reversed(inside):
            wished = {
                key: statistics.mean([row[each] for each in near[key] if each in row] or [row.get(key, tallest)])
                for key in keys
            }
            keys.sort(key=wished.__getitem__)
            for number, key in enumerate(keys):
                row[key] = number + (tallest - len(keys)) / 2
    return {key: (float(column[key]), row[key]) for key in graph}
