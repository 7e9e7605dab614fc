"""Output heads: from features to log-probabilities of tokens, behind one interface."""

from trellisnet.models.heads.base import IGNORED, Head
from trellisnet.models.heads.choice import make_head

__all__ = ["IGNORED", "Head", "make_head"]
