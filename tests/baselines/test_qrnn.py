"""The quasi-recurrent network against loops written from the equations."""

import pytest
import torch
from torch import nn

from reference import assert_close, gradients
from trellisnet.baselines.qrnn import QrnnBody


def slow(body, x):
    """Outputs (T, B, D) and the last memories (layers, B, H)."""
    steps, last = list(x), []
    for layer in body.layers:
        taps, c, outputs = len(layer.weight), x.new_zeros(x.shape[1], body.hidden_size), []
        for t in range(len(steps)):
            pre = layer.bias
            for j in range(taps):
                if t - (taps - 1 - j) >= 0:
                    pre = pre + steps[t - (taps - 1 - j)] @ layer.weight[j]
            z, update, o = pre.expand(x.shape[1], -1).chunk(3, -1)
            forget = 1 - update.sigmoid() * (1 - body.zoneout)
            c = forget * c + (1 - forget) * z.tanh()
            outputs.append(o.sigmoid() * c)
        steps = outputs
        last.append(c)
    y = torch.stack(steps)
    return (y if body.down is None else y @ body.down.weight.t() + body.down.bias), torch.stack(last)


@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [
        (1, 1, {"num_layers": 1}),
        (11, 2, {"num_layers": 3, "output_size": 4, "zoneout": 0.3}),
        (9, 1, {"kernel_size": 3, "convolved": "all", "dropout": 0.2}),
    ],
)
def test_outputs_states_and_gradients_are_those_of_the_equations(steps, batch, options):
    body = QrnnBody(3, hidden_size=5, **options).eval()
    for parameter in body.parameters():
        nn.init.uniform_(parameter, -0.8, 0.8)  # biases begin with 0, which would hide an error
    x = torch.randn(steps, batch, 3, requires_grad=True)
    (y, (_, memories)), (expected, last) = body(x), slow(body, x)
    assert_close(y, expected)
    assert_close(memories, last)
    tensors = [x, *body.parameters()]
    assert_close(gradients(y, *tensors), gradients(expected, *tensors))


def test_only_the_chosen_layers_have_several_taps():
    assert [layer.kernel_size for layer in QrnnBody(3, hidden_size=5, num_layers=3).layers] == [2, 1, 1]
    assert [layer.kernel_size for layer in QrnnBody(3, hidden_size=5, convolved="all").layers] == [2, 2]


def test_zoneout_keeps_memories():
    body, x = QrnnBody(3, hidden_size=400, num_layers=1, zoneout=0.75), torch.randn(2, 1, 3)
    _, (_, first) = body(x[:1])
    _, (_, second) = body(x[1:], (body(x[:1])[1][0], first))
    assert (second == first).double().mean().item() == pytest.approx(0.75, abs=0.07)  # 400 draws: 3 deviations
