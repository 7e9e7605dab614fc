"""Charts as SVG, for pages that need nothing but themselves.

Text and axes take the page's colour, so a figure is at home on light and on dark paper. The series' colours are those
of Okabe and Ito that can be seen on both, and that colour-blind readers can tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trellisnet.training.reporting.axes import Axis, drawable, make_axis
from trellisnet.training.reporting.pages import escaped

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("", "7 3", "2 3")  # when all colours are taken
REFERENCE = 'stroke="currentColor" stroke-opacity=".65" stroke-dasharray="5 4"'
WIDTH, HEIGHT = 480.0, 300.0
SMALL, MEDIUM = 12, 14  # sizes of letters
LETTER = 6.6  # width of a small letter, about
LONGEST_NAME = 44
MOST_BUCKETS = 400  # of a line, three points each at most
MOST_DOTS = 2000
MOST_MARKERS = 40  # points of a line that are marked each

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Args:
        name: for the legend; none for a line that the title names.
        points: (x, y), in the order of x. Where y is no finite number the line is interrupted.
        reference: draw it dashed and grey, as something to compare with.
        colour: its number; by default the line's own in the chart. Lines of one thing in several charts share it.
    """

    name: str
    points: Sequence[Point]
    reference: bool = False
    colour: int | None = None


@dataclass(frozen=True)
class Frame:
    """Where a chart's axes are in the drawing."""

    x: Axis
    y: Axis
    left: float
    top: float
    right: float
    bottom: float

    def place(self, point: Point) -> tuple[float, float]:
        """Where a point is in the drawing."""
        x, y = self.x.fraction(point[0]), self.y.fraction(point[1])
        return self.left + x * (self.right - self.left), self.bottom - y * (self.bottom - self.top)

    def has(self, point: Point) -> bool:
        """Whether a point has a place here."""
        axes = (self.x, self.y)
        return all(drawable(value) and not (axis.log and value <= 0) for value, axis in zip(point, axes, strict=True))


def line_chart(title: str, series: Sequence[Series], x_label: str = "", y_label: str = "", log: bool = False) -> str:
    """Lines over steps or epochs.

    Args:
        title: what is shown.
        series: the lines.
        x_label: what whole numbers x counts.
        y_label: what y is.
        log: make y logarithmic, if all of it is positive.
    """
    thinned = [thin(one.points) for one in series]
    frame = _frame(
        make_axis((x for points in thinned for x, _ in points), steps=True),
        make_axis((y for points in thinned for _, y in points), log=log),
        HEIGHT,
    )
    drawn, looks = [], []
    for i, (one, points) in enumerate(zip(series, thinned, strict=True)):
        look = REFERENCE if one.reference else _look(i if one.colour is None else one.colour)
        looks.append((one.name, look))
        drawn.append(_line(points, frame, look, marked=not one.reference and len(one.points) <= MOST_MARKERS))
    legend, bottom = _legend([(name, look) for name, look in looks if name])
    empty = "" if any(drawn) else _text(WIDTH / 2, HEIGHT / 2, "nothing to show yet", "middle")
    y_label = ", ".join(part for part in (y_label, "log scale" if frame.y.log else "") if part)
    return _svg(title, bottom, _grid(frame, x_label, y_label), *drawn, empty, legend)


def scatter_chart(title: str, points: Sequence[Point], x_label: str = "", y_label: str = "") -> str:
    """Pairs of numbers that are equal at best, with the diagonal where they are."""
    points = [point for point in points if all(map(drawable, point))]
    points = points[:: -(-len(points) // MOST_DOTS) or 1]
    axis = make_axis(value for point in points for value in point)
    frame = _frame(axis, axis, WIDTH)
    diagonal = _path([[(axis.low, axis.low), (axis.high, axis.high)]], frame)
    dots = _path([[point] for point in points], frame)
    return _svg(
        title,
        WIDTH,
        _grid(frame, x_label, y_label),
        f'<path d="{diagonal}" {REFERENCE}/>',
        f'<path d="{dots}" stroke="{COLOURS[0]}" stroke-opacity=".55" stroke-width="5" stroke-linecap="round"/>',
    )


def heat_map(title: str, labels: Sequence[str], counts: Sequence[Sequence[float]], x_label: str, y_label: str) -> str:
    """A square of counts, each row's colours by its shares; with numbers where there is room."""
    size = max(len(labels), 1)
    longest = max((min(len(label), 12) for label in labels), default=1)
    left, top = 34 + LETTER * longest, 64.0
    cell = (WIDTH - left - 8) / size
    drawn = [_text(left + cell * size / 2, top - 24, x_label, "middle"), _upright(16, top + cell * size / 2, y_label)]
    every = -(-size * (SMALL + 2) // int(cell * size) or 1)  # labels that do not run into each other
    across = max(every, -(-int(LETTER * (longest + 1)) // max(int(cell), 1)))
    for i, (label, row) in enumerate(zip(labels, counts, strict=True)):
        middle = (i + 0.5) * cell
        if i % across == 0:
            drawn.append(_text(left + middle, top - 6, _shortened(label, 12), "middle"))
        if i % every == 0:
            drawn.append(_text(left - 6, top + middle + 4, _shortened(label, 12), "end"))
        total = sum(row)
        for j, (other, count) in enumerate(zip(labels, row, strict=True)):
            if not count > 0:
                continue
            x, y, share = left + j * cell, top + i * cell, count / total
            strength = share**0.5  # of the colour; a root, so that rare errors are seen beside what is right
            told = f"{y_label} {label}, {x_label} {other}: {count:g} ({share:.1%})"
            drawn.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{cell:.2f}" height="{cell:.2f}" fill="{COLOURS[0]}" '
                f'fill-opacity="{strength:.2f}"><title>{escaped(told)}</title></rect>'
            )
            if cell > LETTER * (len(f"{count:g}") + 0.5):
                colour = "#fff" if strength > 0.6 else "currentColor"
                drawn.append(_text(x + cell / 2, y + cell / 2 + 4, f"{count:g}", "middle", colour))
    border = f'x="{left:.1f}" y="{top:.1f}" width="{cell * size:.1f}" height="{cell * size:.1f}"'
    drawn.append(f'<rect {border} fill="none" stroke="currentColor" stroke-opacity=".4"/>')
    return _svg(title, top + cell * size + 8, *drawn)


def thin(points: Sequence[Point]) -> list[Point]:
    """A long line with fewer points that looks the same: of each stretch its lowest, its highest, and one gap."""
    size = -(-len(points) // MOST_BUCKETS)
    if size <= 3:
        return list(points)
    kept = []
    for start in range(0, len(points), size):
        stretch = range(start, min(start + size, len(points)))
        finite = [i for i in stretch if drawable(points[i][1])]
        gap = [i for i in stretch if not drawable(points[i][1])][:1]
        ends = [f(finite, key=lambda i: points[i][1]) for f in (min, max)] if finite else []
        kept += sorted({*ends, *gap, *({len(points) - 1} & set(stretch))})
    return [points[i] for i in kept]


def _line(points: Sequence[Point], frame: Frame, look: str, marked: bool) -> str:
    pieces: list[list[Point]] = [[]]
    for point in points:
        if frame.has(point):
            pieces[-1].append(point)
        else:
            pieces.append([])
    pieces = [piece for piece in pieces if piece]
    if not pieces:
        return ""
    drawn = f'<path d="{_path(pieces, frame)}" {look} stroke-width="1.8" stroke-linejoin="round"/>'
    if marked:
        dots = _path([[point] for piece in pieces for point in piece], frame)
        colour = look.split(" stroke-dasharray", maxsplit=1)[0]
        drawn += f'<path d="{dots}" {colour} stroke-width="5.5" stroke-linecap="round"/>'
    return drawn


def _path(pieces: Sequence[Sequence[Point]], frame: Frame) -> str:
    """Lines as a path; a point alone becomes a line of no length, of which a round end is seen."""
    commands = []
    for piece in pieces:
        places = [f"{x:.1f} {y:.1f}" for x, y in map(frame.place, piece)]
        commands.append("M" + "L".join(places) + ("h0" if len(places) == 1 else ""))
    return "".join(commands)


def _frame(x: Axis, y: Axis, height: float) -> Frame:
    widest = max((len(label) for _, label in y.ticks), default=1)
    return Frame(x, y, left=34 + LETTER * widest, top=34, right=WIDTH - 16, bottom=height - 46)


def _grid(frame: Frame, x_label: str, y_label: str) -> str:
    drawn, lines = [], []
    for value, label in frame.x.ticks:
        x, _ = frame.place((value, frame.y.low))
        lines.append(f"M{x:.1f} {frame.top:.1f}V{frame.bottom:.1f}")
        drawn.append(_text(x, frame.bottom + 17, label, "middle"))
    for value, label in frame.y.ticks:
        _, y = frame.place((frame.x.low, value))
        lines.append(f"M{frame.left:.1f} {y:.1f}H{frame.right:.1f}")
        drawn.append(_text(frame.left - 6, y + 4, label, "end"))
    axes = f"M{frame.left:.1f} {frame.top:.1f}V{frame.bottom:.1f}H{frame.right:.1f}"
    return "".join(
        [
            f'<path d="{"".join(lines)}" stroke="currentColor" stroke-opacity=".15"/>',
            f'<path d="{axes}" stroke="currentColor" stroke-opacity=".6"/>',
            *drawn,
            _text((frame.left + frame.right) / 2, frame.bottom + 36, x_label, "middle"),
            _upright(16, (frame.top + frame.bottom) / 2, y_label),
        ]
    )


def _look(number: int) -> str:
    """How a line is told from others."""
    dash = DASHES[number // len(COLOURS) % len(DASHES)]
    return f'stroke="{COLOURS[number % len(COLOURS)]}"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _legend(looks: Sequence[tuple[str, str]]) -> tuple[str, float]:
    """Names beneath a chart, as many in a row as have room, and where they end."""
    if not looks:
        return "", HEIGHT
    drawn, x, y = [], 16.0, HEIGHT + 12
    for name, look in looks:
        shown = _shortened(name, LONGEST_NAME)
        width = 46 + LETTER * len(shown)
        if x > 16 and x + width > WIDTH:
            x, y = 16.0, y + 19
        drawn.append(f'<path d="M{x:.1f} {y:.1f}h24" {look} stroke-width="2.5"/>' + _text(x + 30, y + 4, shown))
        x += width
    return "".join(drawn), y + 14


def _shortened(name: str, longest: int) -> str:
    """A name without its middle, if it is long: its ends tell more.

    >>> _shortened("runs/word-ptb-without-weight-dropout-1", 21)
    'runs/word-…-dropout-1'
    """
    half = longest // 2
    return name if len(name) <= longest else f"{name[: longest - half - 1]}…{name[-half:]}"


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = "currentColor") -> str:
    if not text:
        return ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escaped(text)}</text>'


def _upright(x: float, y: float, text: str) -> str:
    return f'<g transform="rotate(-90 {x:.1f} {y:.1f})">{_text(x, y, text, "middle")}</g>' if text else ""


def _svg(title: str, height: float, *content: str) -> str:
    name = escaped(title)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" '
        f'aria-label="{name}" fill="none" font-family="system-ui, sans-serif" font-size="{SMALL}"><title>{name}</title>'
        f'<text x="{WIDTH / 2:.0f}" y="18" text-anchor="middle" fill="currentColor" font-size="{MEDIUM}" '
        f'font-weight="600">{name}</text>{"".join(content)}</svg>'
    )
