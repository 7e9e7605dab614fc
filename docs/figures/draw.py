"""A small drawing vocabulary: shapes and words in, an SVG file out that needs nothing but itself.

A drawing brings its own paper, so that it can be read on any page, and follows the reader's choice of light or dark.
Colours have names (tones) and are set once, in the style: those of Okabe and Ito, which colour-blind readers can tell
apart, and lighter ones of the same hues on dark paper.
"""

from __future__ import annotations

import math
from html import escape

LIGHT = {
    "paper": "#ffffff",
    "edge": "#d9dfe5",
    "ink": "#1c2530",
    "soft": "#66717d",
    "faint": "#cdd4db",
    "pale": "#eef1f4",
    "blue": "#0072b2",
    "orange": "#d55e00",
    "green": "#00875f",
    "pink": "#b0568a",
}
DARK = {
    "paper": "#1b2129",
    "edge": "#38414c",
    "ink": "#e8edf2",
    "soft": "#a3aeb9",
    "faint": "#4a5460",
    "pale": "#2a323c",
    "blue": "#56b4e9",
    "orange": "#f0914d",
    "green": "#3cc79b",
    "pink": "#e193bf",
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, 'DejaVu Sans Mono', monospace"
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
        weight = ' font-weight="600"' if bold else ""
        family = ' class="code' if code else ' class="'
        self.parts.append(
            f'<text x="{number(x)}" y="{number(y + 0.34 * size)}" text-anchor="{anchor}" font-size="{number(size)}"'
            f'{weight}{family} fill-{tone}">{escape(words)}</text>'
        )

    def line(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        tone: str = "soft",
        width: float = 1.5,
        dashed: bool = False,
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
        dash = ' stroke-dasharray="4 4"' if dashed else ""
        self.parts.append(
            f'<path class="stroke-{tone}" d="M{point(start)}{way}" stroke-width="{number(width)}"{dash}/>'
        )
        if arrow:
            back = (x2 - ahead[0] * HEAD, y2 - ahead[1] * HEAD)
            side = (-ahead[1] * HEAD * 0.45, ahead[0] * HEAD * 0.45)
            corners = [end, (back[0] + side[0], back[1] + side[1]), (back[0] - side[0], back[1] - side[1])]
            self.parts.append(f'<path class="fill-{tone}" d="M{"L".join(map(point, corners))}Z"/>')

    def circle(self, centre: tuple[float, float], radius: float, fill: str = "paper", stroke: str = "soft") -> None:
        """A circle, filled with a tone or with a tint of it (`blue-tint`), with an outline."""
        x, y = map(number, centre)
        look = f'class="fill-{fill} stroke-{stroke}" stroke-width="1.5"'
        self.parts.append(f'<circle cx="{x}" cy="{y}" r="{number(radius)}" {look}/>')

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
        outline = "" if stroke is None else f' stroke-{stroke}" stroke-width="1.5'
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" '
            f'rx="{number(radius)}" class="fill-{fill}{outline}"{dash}/>'
        )

    def region(self, corners: list[tuple[float, float]], fill: str) -> None:
        """An area without an outline, behind what follows."""
        self.parts.append(f'<path class="fill-{fill}" d="M{"L".join(map(point, corners))}Z"/>')

    def svg(self) -> str:
        """The file's content."""
        name = escape(self.title)
        size = f'width="{number(self.width)}" height="{number(self.height)}"'
        view = f'viewBox="0 0 {number(self.width)} {number(self.height)}"'
        paper = f'<rect x=".5" y=".5" width="{number(self.width - 1)}" height="{number(self.height - 1)}" rx="10"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} role="img" aria-label="{name}" fill="none">',
                f"<title>{name}</title>",
                f"<style>\n{style()}</style>",
                f'{paper} class="fill-paper stroke-edge"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def style() -> str:
    """The tones as classes for fills, strokes and tints, for light and for dark paper."""
    return (
        f"text {{ font-family: {FONT}; }}\n"
        f".code {{ font-family: {MONO}; }}\n"
        + _rules(LIGHT, 0.16)
        + "@media (prefers-color-scheme: dark) {\n"
        + _rules(DARK, 0.24)
        + "}\n"
    )


def _rules(tones: dict[str, str], strength: float) -> str:
    lines = []
    for name, colour in tones.items():
        tint = _mixed(tones["paper"], colour, strength)
        lines.append(f".fill-{name} {{ fill: {colour}; }} .fill-{name}-tint {{ fill: {tint}; }}")
        lines.append(f".stroke-{name} {{ stroke: {colour}; }}")
    return "\n".join(lines) + "\n"


def _mixed(paper: str, colour: str, share: float) -> str:
    """The colour that a transparent one has on paper: what lies behind must not shine through."""
    pairs = zip(_channels(paper), _channels(colour), strict=True)
    return "#" + "".join(f"{round((1 - share) * a + share * b):02x}" for a, b in pairs)


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def number(value: float) -> str:
    """A number with one decimal at most.

    >>> number(3.0), number(2.25), number(-0.04)
    ('3', '2.2', '0')
    """
    return f"{round(value, 1) + 0.0:g}"  # adding zero takes the sign of a negative zero away


def point(place: tuple[float, float]) -> str:
    """A place as paths have it."""
    return f"{number(place[0])} {number(place[1])}"
