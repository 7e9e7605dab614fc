"""Tables on standard output."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: Collection[str]) -> None:
    """Print a formatted table on a terminal; elsewhere plain columns without wrapping, for other programs.

    Args:
        head: titles of the columns.
        rows: the cells.
        texts: titles of the columns that are not numbers, which are left-aligned.
    """
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        drawn = Table()
        for title in head:
            drawn.add_column(title, justify="left" if title in texts else "right", overflow="fold")
        for row in rows:
            drawn.add_row(*map(Text, row))  # without markup, because names may have brackets
        Console().print(drawn)
        return
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        cells = zip(head, row, widths, strict=True)
        print("  ".join(f"{cell:{'<' if title in texts else '>'}{width}}" for title, cell, width in cells))
