"""The report of a run: a page with curves and results."""
