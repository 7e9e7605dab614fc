"""Self-contained HTML pages without scripts, with a light and a dark theme, for screens and print."""

from __future__ import annotations

import html
from collections.abc import Sequence

_CONTROLS = (code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t")
_NO_CHARACTERS = (*range(0xD800, 0xE000), 0xFFFE, 0xFFFF)  # lone surrogates and noncharacters, which XML forbids
_VISIBLE = {code: f"\\x{code:02x}" for code in _CONTROLS} | {code: f"\\u{code:04x}" for code in _NO_CHARACTERS}

TONES = {  # for the light and the dark theme; colour-blind readers can distinguish the series
    "paper": ("#ffffff", "#1b2129"),
    "ink": ("#1c2530", "#e8edf2"),
    "soft": ("#5f6973", "#a3aeb9"),
    "line": ("#d3d9e0", "#3d4753"),
    "pale": ("#eef1f4", "#2a323c"),
    "blue": ("#0072b2", "#56b4e9"),
    "orange": ("#d55e00", "#f0914d"),
    "green": ("#00875f", "#3cc79b"),
    "pink": ("#b0568a", "#e193bf"),
    "gold": ("#957000", "#e3c04b"),
    "violet": ("#6a51a3", "#b3a2e6"),
}


def _variables(column: int) -> str:
    return ":root { " + " ".join(f"--{tone}: {pair[column]};" for tone, pair in TONES.items()) + " }"


THEME = f"{_variables(0)}\n@media screen and (prefers-color-scheme: dark) {{ {_variables(1)} }}"
STYLE = """
:root { color-scheme: light dark; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 64rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { margin: 0; font-size: 1.6rem; line-height: 1.25; }
h2 { margin: 2.2rem 0 .7rem; font-size: 1.15rem; }
p { margin: .5rem 0; }
.soft, figcaption, th { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { font-weight: 500; }
.numbers th + th, .numbers td + td { text-align: right; padding: .35rem 0 .35rem 1.4rem; }
.numbers td + td { white-space: nowrap; }
.numbers td:first-child { overflow-wrap: anywhere; min-width: 9rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1.5rem; }
figure { margin: 0; max-width: 36rem; break-inside: avoid; }
figcaption { font-size: .85rem; padding: 0 1rem; }
svg { display: block; width: 100%; height: auto; }
pre { margin: .5rem 0; padding: .7rem .9rem; background: var(--pale); border-radius: 6px; font-size: .85rem;
  line-height: 1.45; white-space: pre-wrap; }
summary { cursor: pointer; }
@media print {
  :root { color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  h2 { break-after: avoid; }
}
"""


def visible(text: object) -> str:
    """Text with control characters escaped as in Python, because pages must not contain them."""
    return str(text).translate(_VISIBLE)


def escaped(text: object) -> str:
    r"""Any text as HTML.

    >>> escaped("<b>\x00")
    '&lt;b&gt;\\x00'
    """
    return html.escape(visible(text))


def page(title: str, *sections: str) -> str:
    """A complete page. Its content security policy forbids scripts and external resources."""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            '<meta charset="utf-8">',
            """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">""",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escaped(title)}</title>",
            f"<style>\n{THEME}{STYLE}</style>",
            *(section for section in sections if section),
            "</html>\n",
        ]
    )


def section(title: str, *content: str) -> str:
    """A section of a page from HTML content; empty without content."""
    inner = "\n".join(part for part in content if part)
    return f"<section>\n<h2>{escaped(title)}</h2>\n{inner}\n</section>" if inner else ""


def table(head: Sequence[object], rows: Sequence[Sequence[object]], numbers: bool = False) -> str:
    """A table of texts; with `numbers`, all columns but the first are right-aligned."""
    kind = ' class="numbers"' if numbers else ""
    lines = [_row("th", head), *(_row("td", row) for row in rows)] if head else [_row("td", row) for row in rows]
    return f'<div class="wide"><table{kind}>\n' + "\n".join(lines) + "\n</table></div>"


def figure(drawing: str, caption: str = "") -> str:
    """A drawing with a caption."""
    beneath = f"<figcaption>{escaped(caption)}</figcaption>" if caption else ""
    return f"<figure>{drawing}{beneath}</figure>"


def figures(*content: str) -> str:
    """Figures side by side if the page is wide enough."""
    inner = "\n".join(one for one in content if one)
    return f'<div class="figures">\n{inner}\n</div>' if inner else ""


def verbatim(text: str) -> str:
    """Text with its spaces and line breaks."""
    # HTML drops a line break directly after <pre>, so one is added before the text.
    return f"<pre>\n{escaped(text)}</pre>"


def _row(cell: str, values: Sequence[object]) -> str:
    return "<tr>" + "".join(f"<{cell}>{escaped(value)}</{cell}>" for value in values) + "</tr>"
