"""Nets in forecasting models of darts, which trains them, carries their states and writes ONNX files."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from trellisnet import TrellisNet

darts = pytest.importorskip("darts", reason="darts is not installed")
pytest.importorskip("lightning", reason="darts trains with lightning")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra export")
pytestmark = pytest.mark.filterwarnings("ignore")  # of darts and lightning about themselves

from darts.models import BlockRNNModel, RNNModel  # noqa: E402
from darts.models.forecasting.block_rnn_model import CustomBlockRNNModule  # noqa: E402
from darts.models.forecasting.pl_forecasting_module import io_processor  # noqa: E402
from darts.models.forecasting.rnn_model import CustomRNNModule  # noqa: E402
from darts.utils.data.torch_datasets.utils import PLModuleOutput  # noqa: E402
from darts.utils.onnx import run_onnx_prediction  # noqa: E402

QUIET = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "logger": False}
OPTIONS = {"hidden_dim": 8, "n_epochs": 1, "pl_trainer_kwargs": QUIET}


def net_of(module):
    return TrellisNet(module.input_size, module.hidden_dim, 4, dilation=[1, 2], batch_first=True, weight_norm=True)


class Block(CustomBlockRNNModule):
    """Predicts a block of steps from the last output."""

    def __init__(self, name=None, **options):
        super().__init__(**options)
        self.net = net_of(self)
        self.out = nn.Linear(self.hidden_dim, self.output_chunk_length)

    @io_processor
    def forward(self, x_in):
        y, _ = self.net(x_in.concatenate_past_features(), tail=1)
        return PLModuleOutput(self.out(y[:, -1])[:, :, None, None])


class Stream(CustomRNNModule):
    """Predicts step by step; darts carries the tensors of the state."""

    def __init__(self, name=None, **options):
        super().__init__(**options)
        self.net = net_of(self)
        self.out = nn.Linear(self.hidden_dim, 1)
        with torch.no_grad():
            self.form = pytree.tree_structure(self.net(torch.zeros(1, 1, self.input_size))[1])

    @io_processor
    def forward(self, x_in):
        continues = x_in.state is not None
        state = pytree.tree_unflatten(x_in.state, self.form) if continues else None
        y, state = self.net(x_in.past_target[:, -1:] if continues else x_in.past_target, state)
        y = y if self.training else y[:, -1:]
        return PLModuleOutput(self.out(y)[..., None], tuple(pytree.tree_leaves(state)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: BlockRNNModel(16, 4, model=Block, **OPTIONS),
        lambda: RNNModel(16, model=Stream, training_length=24, **OPTIONS),
    ],
    ids=["block", "stream"],
)
def test_a_forecast_and_the_same_from_an_onnx_file(make, tmp_path):
    torch.set_default_dtype(torch.float32)
    series = darts.TimeSeries.from_values(np.sin(np.arange(60) / 5).astype("float32"))
    model = make()
    model.fit(series)
    expected = model.predict(4).values()
    model.to_onnx(str(tmp_path / "model.onnx"))
    found = run_onnx_prediction(n=4, session=onnxruntime.InferenceSession(tmp_path / "model.onnx"), series=series)
    np.testing.assert_allclose(found.values(), expected, atol=1e-6)  # single precision
