"""All figures of the documentation, and its tables of measurements.

python docs/figures/make.py    writes docs/images/*.svg, and the tables of the PAGES
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import charts
import concepts
import contests
import depths
import heads
import histories
import tables
import ways

DOCS = Path(__file__).parents[1]
PAGES = ("contests.md", "paths.md", "performance.md")  # with tables of measurements
FIGURES: dict[str, Callable[[], str]] = {
    "trellis": concepts.overview,
    "atom": concepts.atom,
    "grid": concepts.grid,
    "cones": concepts.cones,
    "dilated-cone": concepts.dilated_cone,
    "left-contexts": histories.left_contexts,
    "lstm": histories.lstm,
    "paths": ways.paths,
    "attention": heads.attention,
    "receptive-field": charts.receptive_field,
    "training-time": charts.training,
    "training-memory": charts.memory,
    "streaming": charts.streaming,
    "depth-quality": depths.quality,
    "depth-cost": depths.cost,
    "convergence": depths.convergence,
    "iterations": depths.iterations,
    "depth-time": depths.time_per_token,
    "depth-memory": depths.memory_per_token,
    "time-char-ptb": contests.over_time("char-ptb-ways", "Characters: quality over time", "valid bits", 2.35),
    "time-word-ptb": contests.over_time("word-ptb-ways", "Words: quality over time", "valid perplexity", 420),
}


def write_figures(folder: Path) -> None:
    """Draw every figure into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        (folder / f"{name}.svg").write_text(draw(), encoding="utf-8")


def main() -> None:
    """Write all of them."""
    write_figures(DOCS / "images")
    for name in PAGES:
        page = DOCS / name
        page.write_text(tables.filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
