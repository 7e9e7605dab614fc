"""Scores of translations with sacrebleu, which states how they were computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def require_sacrebleu() -> Any:
    """Import and return the `sacrebleu` package.

    Raises:
        ImportError: names the extra that installs it.
    """
    try:
        import sacrebleu  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("BLEU needs the sacrebleu package, of the extra 'translation'") from error
    return sacrebleu


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
