"""Shapes and text of the concept drawings, as an SVG file in the style of the charts.

A tone is the name of a colour of the theme, such as `blue`, or a tint of it, such as `blue-tint`.
"""

from __future__ import annotations

import math
from html import escape

from trellisnet.training.reporting.drawing import wrapped

MONO = "ui-monospace, monospace"
HEAD = 7.0  # length of an arrow's head


class Drawing:
    """A picture of fixed size, to which shapes are added from back to front."""

    def __init__(self, title: str, width: float, height: float) -> None:
        self.title, self.width, self.height = title, width, height
        self.parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        tone: str = "ink",
        size: float = 14,
        anchor: str = "middle",
        bold: bool = False,
        code: bool = False,
    ) -> None:
        """Words on a line; `y` is the middle of its small letters. A hyphen between blanks becomes a minus sign."""
        words = words if code else words.replace(" - ", " \N{MINUS SIGN} ")
        look = (' font-weight="600"' if bold else "") + (f' font-family="{MONO}"' if code else "")
        self.parts.append(
            f'<text x="{number(x)}" y="{number(y + 0.34 * size)}" text-anchor="{anchor}" font-size="{number(size)}"'
            f'{look} style="fill: {colour(tone)}">{escape(words)}</text>'
        )

    def line(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        tone: str = "soft",
        width: float = 1.5,
        arrow: bool = False,
        bend: float = 0.0,
    ) -> None:
        """A line, with an arrow's head at its end if asked for; `bend` is how far its middle stands aside."""
        (x1, y1), (x2, y2) = start, end
        length = math.hypot(x2 - x1, y2 - y1) or 1.0
        across = (-(y2 - y1) / length, (x2 - x1) / length)
        middle = ((x1 + x2) / 2 + 2 * bend * across[0], (y1 + y2) / 2 + 2 * bend * across[1])
        reach = math.hypot(x2 - middle[0], y2 - middle[1]) or 1.0
        ahead = ((x2 - middle[0]) / reach, (y2 - middle[1]) / reach)
        tip = (x2 - ahead[0] * HEAD * 0.8, y2 - ahead[1] * HEAD * 0.8) if arrow else end
        way = f"Q{point(middle)} {point(tip)}" if bend else f"L{point(tip)}"
        self.parts.append(
            f'<path d="M{point(start)}{way}" stroke-width="{number(width)}" style="stroke: {colour(tone)}"/>'
        )
        if arrow:
            back = (x2 - ahead[0] * HEAD, y2 - ahead[1] * HEAD)
            side = (-ahead[1] * HEAD * 0.45, ahead[0] * HEAD * 0.45)
            corners = [end, (back[0] + side[0], back[1] + side[1]), (back[0] - side[0], back[1] - side[1])]
            self.parts.append(f'<path d="M{"L".join(map(point, corners))}Z" style="fill: {colour(tone)}"/>')

    def circle(self, centre: tuple[float, float], radius: float, fill: str = "paper", stroke: str = "soft") -> None:
        """A circle, filled with a tone or with a tint of it (`blue-tint`), with an outline."""
        x, y = map(number, centre)
        look = f"fill: {colour(fill)}; stroke: {colour(stroke)}"
        self.parts.append(f'<circle cx="{x}" cy="{y}" r="{number(radius)}" stroke-width="1.5" style="{look}"/>')

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = "paper",
        stroke: str | None = "soft",
        radius: float = 6,
        dashed: bool = False,
    ) -> None:
        """A rectangle with round corners; `x`, `y` is its upper left one."""
        look = f"fill: {colour(fill)}" + (f"; stroke: {colour(stroke)}" if stroke else "")
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" '
            f'rx="{number(radius)}" stroke-width="1.5"{dash} style="{look}"/>'
        )

    def svg(self) -> str:
        """The file's content."""
        return wrapped(self.title, self.width, self.height, "\n".join(self.parts), alone=True)


def colour(tone: str) -> str:
    """A tone as CSS. Tints are mixed with paper, since a transparent shape would show the lines behind it."""
    name, tint, _ = tone.partition("-tint")
    return f"color-mix(in srgb, var(--{name}) 20%, var(--paper))" if tint else f"var(--{name})"


def number(value: float) -> str:
    """A number with one decimal at most.

    >>> number(3.0), number(2.25), number(-0.04)
    ('3', '2.2', '0')
    """
    return f"{round(value, 1) + 0.0:g}"  # adding zero takes the sign of a negative zero away


def point(place: tuple[float, float]) -> str:
    """A place as paths have it."""
    return f"{number(place[0])} {number(place[1])}"
