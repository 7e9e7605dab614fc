"""matplotlib charts as SVG that follows the theme of the surrounding page.

matplotlib is an extra (`plots`) and is imported only while a chart is drawn. Colours in the SVG are CSS variables:
pages define them with `THEME`, and a standalone SVG file contains the same definitions.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from trellisnet.training.reporting.pages import THEME, TONES, escaped, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SERIES = ("blue", "orange", "green", "pink", "gold", "violet")
LIGHT = {tone: light for tone, (light, _) in TONES.items()}  # colours for matplotlib
MISSING = "figures need matplotlib: pip install 'trellisnet[plots]'"
TOOLTIP = "tooltip: "  # marks a group id that becomes the group's tooltip
STYLE: dict[Any, Any] = {
    "axes.edgecolor": LIGHT["soft"],
    "axes.grid": True,
    "axes.labelcolor": LIGHT["ink"],
    "axes.labelpad": 7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.h_pad": 0.15,
    "figure.constrained_layout.w_pad": 0.15,
    "figure.titlesize": 14,
    "figure.titleweight": "bold",
    "font.family": "DejaVu Sans",  # part of matplotlib: the layout is the same on every machine
    "font.size": 12,
    "grid.color": LIGHT["line"],
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "path.simplify_threshold": 0.5,  # pixels; long curves become short paths that look the same
    "svg.fonttype": "none",
    "text.color": LIGHT["ink"],
    "text.parse_math": False,  # a run's name may contain $
    "xtick.color": LIGHT["soft"],
    "xtick.labelcolor": LIGHT["ink"],
    "xtick.major.size": 0,
    "ytick.color": LIGHT["soft"],
    "ytick.labelcolor": LIGHT["ink"],
    "ytick.major.size": 0,
}


def has_matplotlib() -> bool:
    """Whether charts can be drawn."""
    try:
        import matplotlib  # noqa: F401, PLC0415
    except ImportError:
        return False
    return True


def chart(title: str, width: float, height: float, fill: Callable[[Axes], None], alone: bool = False) -> str:
    """A chart as SVG; equal input gives equal text.

    Args:
        title: shown above the chart; also its accessible name.
        width: width in pixels.
        height: height in pixels.
        fill: draws into the axes, with colours from `LIGHT`.
        alone: make a standalone file, with its own background and theme.
    """
    from matplotlib import style  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    file = io.StringIO()
    # The user's matplotlib settings must not apply. Ids are salted hashes, so that charts on one page share none.
    with style.context({**STYLE, "svg.hashsalt": title}, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the browser draws the text with its own fonts
        figure = Figure((width / 72, height / 72), dpi=72, frameon=False, layout="constrained")
        figure.suptitle(visible(title))
        axes = figure.subplots()
        axes.patch.set_visible(False)
        axes.set_axisbelow(True)
        fill(axes)
        figure.savefig(file, format="svg", metadata={"Date": None})
    return wrapped(title, width, height, _cleaned(file.getvalue()), alone)


def wrapped(title: str, width: float, height: float, content: str, alone: bool) -> str:
    """Shapes as an accessible SVG, with background and theme if it is a standalone file."""
    name, own = escaped(title), ""
    size = f'viewBox="0 0 {width:g} {height:g}"'
    if alone:
        size += f' width="{width:g}" height="{height:g}"'
        paper = f'<rect x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" rx="10"'
        own = f'<style>\n{THEME}\n</style>\n{paper} style="fill: var(--paper); stroke: var(--line)"/>\n'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{name}" fill="none" '
        f'stroke-linejoin="round" font-family="system-ui, sans-serif">\n<title>{name}</title>\n{own}{content}\n</svg>\n'
    )


def _cleaned(svg: str) -> str:
    """The shapes of matplotlib's SVG, with colours as variables, and without ids, styles or clipping paths."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.text = element.text if element.tag in ("text", "title") else None
        element.tail = None
        named = element.attrib.pop("id", "")
        element.attrib = {
            name.rpartition("}")[2]: _value(value) for name, value in element.items() if name != "clip-path"
        }
        if named.startswith(TOOLTIP):
            ElementTree.SubElement(element, "title").text = named.removeprefix(TOOLTIP)
        elif element.tag == "path" and named:  # a marker, referenced by its id
            element.set("id", named)
        for child in list(element):
            if child.tag.endswith(("metadata", "style", "clipPath")):
                element.remove(child)
    return "\n".join(ElementTree.tostring(child, encoding="unicode") for child in root if len(child))


def _value(value: str) -> str:
    """An attribute with colours as variables, without fonts, and with two decimals."""
    for tone, colour in LIGHT.items():
        value = value.replace(colour, f"var(--{tone})")
    value = re.sub(r"font-family: [^;]*(; )?", "", value)
    value = re.sub(r"\d+\.\d+", lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), value)
    return " ".join(value.split())
