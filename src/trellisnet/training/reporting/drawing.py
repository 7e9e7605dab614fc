"""Charts of matplotlib as SVG that follows the theme of the page around it.

matplotlib is an extra (`plots`) and is imported only while a chart is drawn. Colours in the SVG are CSS variables:
pages define them with `THEME`, and an SVG file of its own contains the same definitions.
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
LIGHT = {tone: light for tone, (light, _) in TONES.items()}  # what matplotlib draws with
MISSING = "figures need matplotlib: pip install 'trellisnet[plots]'"
TOLD = "told: "  # marks a group id that becomes the group's tooltip
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
    "font.family": "DejaVu Sans",  # comes with matplotlib: the layout is the same on every machine
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
        title: stands above the chart and is its accessible name.
        width: in pixels.
        height: in pixels.
        fill: draws into the axes, with colours from `LIGHT`.
        alone: for a file of its own, which needs its own paper and theme.
    """
    from matplotlib import style  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    file = io.StringIO()
    # The user's own settings must not show. Ids are hashes with the salt: charts of one page do not share any.
    with style.context({**STYLE, "svg.hashsalt": title}, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the browser's fonts draw the text
        figure = Figure((width / 72, height / 72), dpi=72, frameon=False, layout="constrained")
        figure.suptitle(visible(title))
        axes = figure.subplots()
        axes.patch.set_visible(False)
        axes.set_axisbelow(True)
        fill(axes)
        figure.savefig(file, format="svg", metadata={"Date": None})
    return wrapped(title, width, height, _cleaned(file.getvalue()), alone)


def wrapped(title: str, width: float, height: float, content: str, alone: bool) -> str:
    """Shapes as an accessible SVG, with paper and theme if it is a file of its own."""
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
    """The shapes of matplotlib's SVG: tones as variables, no ids, styles or clipping that could touch the page."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.text = element.text if element.tag in ("text", "title") else None
        element.tail = None
        named = element.attrib.pop("id", "")
        element.attrib = {
            name.rpartition("}")[2]: _value(value) for name, value in element.items() if name != "clip-path"
        }
        if named.startswith(TOLD):
            ElementTree.SubElement(element, "title").text = named.removeprefix(TOLD)
        elif element.tag == "path" and named:  # a marker, which is used by its id
            element.set("id", named)
        for child in list(element):
            if child.tag.endswith(("metadata", "style", "clipPath")):
                element.remove(child)
    return "\n".join(ElementTree.tostring(child, encoding="unicode") for child in root if len(child))


def _value(value: str) -> str:
    """An attribute with tones for colours, the page's font, and two decimals."""
    for tone, colour in LIGHT.items():
        value = value.replace(colour, f"var(--{tone})")
    value = re.sub(r"font-family: [^;]*(; )?", "", value)
    value = re.sub(r"\d+\.\d+", lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), value)
    return " ".join(value.split())
