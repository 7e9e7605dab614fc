"""`trellisnet tables`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Literal

from trellisnet.training.tables import HEAD, as_markdown, load_tables


def tables(*, format: Literal["text", "json", "markdown"] = "text", data: str | None = None) -> None:
    """Print published results beside ours, and the commands that train them: the paper's tables 1 to 4, and others.

    Args:
        format: text; json, with all facts; or markdown, as in the documentation.
        data: only the table of this dataset: ptb-word, wikitext-103, ptb-char, seq-mnist, perm-mnist, seq-cifar10 or
            music.
    """
    from trellisnet.core.checks import one_of  # noqa: PLC0415

    found = load_tables()
    if data is not None:
        one_of("--data", data, list(dict.fromkeys(table.data for table in found)))
        found = [table for table in found if table.data == data]
    if format == "json":
        print(json.dumps([asdict(table) for table in found], indent=1))
    elif format == "markdown":
        print(as_markdown(found))
    else:
        from rich.console import Console  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        console = Console()
        console.width = max(console.width, 120)
        for table in found:
            title = f"{table.heading}, {table.metric}"
            drawn = Table(*HEAD, title=title, title_justify="left", box=None)
            for texts in table.texts():
                drawn.add_row(*map(Text, texts))
            console.print(drawn, "")
