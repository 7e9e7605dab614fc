"""Trellis networks (Bai, Kolter, Koltun, ICLR 2019) for PyTorch: use them like `nn.LSTM`."""

from trellisnet.core.cells import Cell
from trellisnet.core.state import TrellisState
from trellisnet.core.theorem import from_rnn
from trellisnet.core.trellis import TrellisNet
from trellisnet.models.evaluation import ContinuousCache, DynamicEvaluation, gradient_statistics
from trellisnet.models.language import TrellisLM
from trellisnet.models.sequence import TrellisClassifier, TrellisRegressor
from trellisnet.vocabulary import Vocabulary

__version__ = "0.1.0"
__all__ = [
    "Cell",
    "ContinuousCache",
    "DynamicEvaluation",
    "TrellisClassifier",
    "TrellisLM",
    "TrellisNet",
    "TrellisRegressor",
    "TrellisState",
    "Vocabulary",
    "from_rnn",
    "gradient_statistics",
]
