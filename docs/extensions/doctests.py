"""Shows the doctests at the end of docstrings as examples in the reference.

The project writes them without a heading, for which the parser of docstrings would take them as quotations.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Puts the heading `Examples:` over them, and indents them."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called by griffe for everything that it has read."""
        if obj.docstring is not None:
            obj.docstring.value = with_heading(obj.docstring.value)


def with_heading(docstring: str) -> str:
    r"""A docstring whose doctests have a heading.

    >>> with_heading("Add.\n\n>>> 1 + 1\n2")
    'Add.\n\nExamples:\n    >>> 1 + 1\n    2'
    """
    start = re.search(r"^>>> ", docstring, re.MULTILINE)
    if start is None:
        return docstring
    words, tests = docstring[: start.start()], docstring[start.start() :]
    return words + "Examples:\n" + "\n".join(f"    {line}".rstrip() for line in tests.splitlines())
