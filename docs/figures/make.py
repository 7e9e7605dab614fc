"""All figures of the documentation, and the tables of its page on performance.

python docs/figures/make.py    writes docs/images/*.svg, and the tables in docs/performance.md
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import charts
import concepts
import histories
import tables

DOCS = Path(__file__).parents[1]
FIGURES: dict[str, Callable[[], str]] = {
    "trellis": concepts.overview,
    "atom": concepts.atom,
    "grid": concepts.grid,
    "cones": concepts.cones,
    "dilated-cone": concepts.dilated_cone,
    "left-contexts": histories.left_contexts,
    "lstm": histories.lstm,
    "receptive-field": charts.receptive_field,
    "training-time": charts.training,
    "training-memory": charts.memory,
    "streaming": charts.streaming,
}


def write_figures(folder: Path) -> None:
    """Draw every figure into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        (folder / f"{name}.svg").write_text(draw(), encoding="utf-8")


def main() -> None:
    """Write all of them."""
    write_figures(DOCS / "images")
    page = DOCS / "performance.md"
    page.write_text(tables.filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
