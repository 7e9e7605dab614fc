"""Trellis networks (Bai, Kolter, Koltun, ICLR 2019) for PyTorch: use them like `nn.LSTM`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trellisnet.core.attention import AttentionTrellis as AttentionTrellis
    from trellisnet.core.bridge import as_attention as as_attention
    from trellisnet.core.cells import AffineCell as AffineCell
    from trellisnet.core.cells import Cell as Cell
    from trellisnet.core.state import TrellisState as TrellisState
    from trellisnet.core.theorem import from_rnn as from_rnn
    from trellisnet.core.trellis import TrellisNet as TrellisNet
    from trellisnet.models.evaluation import ContinuousCache as ContinuousCache
    from trellisnet.models.evaluation import DynamicEvaluation as DynamicEvaluation
    from trellisnet.models.evaluation import gradient_statistics as gradient_statistics
    from trellisnet.models.language import LanguageModel as LanguageModel
    from trellisnet.models.seq2seq import Seq2Seq as Seq2Seq
    from trellisnet.models.seq2seq import TrellisSeq2Seq as TrellisSeq2Seq
    from trellisnet.models.sequence import SequenceClassifier as SequenceClassifier
    from trellisnet.models.sequence import SequenceLabeller as SequenceLabeller
    from trellisnet.models.sequence import SequenceRegressor as SequenceRegressor
    from trellisnet.models.sequence import SequenceTagger as SequenceTagger
    from trellisnet.models.trellis import TrellisClassifier as TrellisClassifier
    from trellisnet.models.trellis import TrellisLM as TrellisLM
    from trellisnet.models.trellis import TrellisRegressor as TrellisRegressor
    from trellisnet.training.backtest import backtest as backtest
    from trellisnet.training.config import TrainingConfig as TrainingConfig
    from trellisnet.training.fit import fit as fit
    from trellisnet.training.prediction import predict as predict
    from trellisnet.vocabulary import Vocabulary as Vocabulary

__version__ = "0.1.0"

# Imported when they are first asked for: the command line answers `--help` without waiting for torch.
_HOMES = {
    "AffineCell": "core.cells",
    "AttentionTrellis": "core.attention",
    "Cell": "core.cells",
    "ContinuousCache": "models.evaluation",
    "DynamicEvaluation": "models.evaluation",
    "LanguageModel": "models.language",
    "Seq2Seq": "models.seq2seq",
    "SequenceClassifier": "models.sequence",
    "SequenceLabeller": "models.sequence",
    "SequenceRegressor": "models.sequence",
    "SequenceTagger": "models.sequence",
    "TrainingConfig": "training.config",
    "TrellisClassifier": "models.trellis",
    "TrellisLM": "models.trellis",
    "TrellisNet": "core.trellis",
    "TrellisRegressor": "models.trellis",
    "TrellisSeq2Seq": "models.seq2seq",
    "TrellisState": "core.state",
    "Vocabulary": "vocabulary",
    "as_attention": "core.bridge",
    "backtest": "training.backtest",
    "fit": "training.fit",
    "from_rnn": "core.theorem",
    "gradient_statistics": "models.evaluation",
    "predict": "training.prediction",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
