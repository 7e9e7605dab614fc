"""What every body keeps to, whatever is inside."""

import pytest
import torch

from reference import assert_close
from trellisnet.models.bodies import BODIES, make_body
from trellisnet.models.body import run_body

NEEDED = {"trellis": {"num_layers": 3}, "attention-trellis": {"num_layers": 3}}


@pytest.mark.parametrize("name", BODIES)
def test_what_is_in_the_padding_changes_no_output_and_no_gradient(name):
    if name == "xlstm":
        pytest.importorskip("xlstm")
    body, lengths = make_body(name, 3, hidden_size=8, **NEEDED.get(name, {})), [7, 1, 4]
    x = torch.randn(7, 3, 3)
    padding = (torch.arange(7)[:, None] >= torch.tensor(lengths)).unsqueeze(-1)

    def outputs_and_gradients(filler):
        y = run_body(body, x.masked_fill(padding, filler), None, lengths=lengths).output
        return [y, *torch.autograd.grad(y.square().sum(), list(body.parameters()))]

    assert_close(outputs_and_gradients(float("nan")), outputs_and_gradients(0.0), 0)
