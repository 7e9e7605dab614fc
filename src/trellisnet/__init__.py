"""Trellis networks (Bai, Kolter, Koltun, ICLR 2019) for PyTorch: use them like `nn.LSTM`."""

from trellisnet.core.cells import Cell
from trellisnet.core.state import TrellisState
from trellisnet.core.theorem import from_rnn
from trellisnet.core.trellis import TrellisNet

__version__ = "0.1.0"
__all__ = ["Cell", "TrellisNet", "TrellisState", "from_rnn"]
