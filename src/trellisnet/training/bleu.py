"""Scores of translations with sacrebleu, which states how they were computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trellisnet.extras import require


def require_sacrebleu() -> Any:
    """Import and return the `sacrebleu` package; an ImportError that names the extra if it is not installed."""
    return require("sacrebleu", "translation", "BLEU")


def scores(translations: Sequence[str], references: Sequence[str]) -> list[str]:
    """Return BLEU and chrF of a corpus as texts, each with its signature.

    Raises:
        ImportError: the extra `translation` is not installed.
    """
    metrics = require_sacrebleu().metrics
    lines = []
    for metric in (metrics.BLEU(), metrics.CHRF()):
        score = metric.corpus_score(list(translations), [list(references)])
        lines.append(f"{score.name} {score.score:.2f} ({metric.get_signature()})")
    return lines
