"""xLSTM blocks, against a loop over the steps of their equations."""

import sys

import pytest
import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from reference import assert_close
from trellisnet.models.bodies import make_body

package = pytest.mark.skipif(sys.version_info < (3, 11), reason="the package xlstm has no kernels for Python 3.10")


def normed(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def capped(x):
    return 15 * torch.tanh(x / 15)


def matrix_memory(layer, x, heads):
    """The mLSTM of a block over x (T, B, H), step by step, without the scale exp(m) that only keeps numbers small."""
    steps, batch, width = x.shape
    q, k, v = (F.linear(x, getattr(layer, name).weight).view(steps, batch, heads, -1) for name in "qkv")
    i, f = (capped(F.linear(x, gate.weight, gate.bias)) for gate in (layer.igate_preact, layer.fgate_preact))
    c, n, m, outputs = 0.0, 0.0, torch.full((batch, heads), 0.0), []
    for t in range(steps):
        later = torch.maximum(F.logsigmoid(f[t]) + m, i[t])  # of the definition: it bounds the divisor from below
        keep, add = (F.logsigmoid(f[t]) + m - later).exp(), (i[t] - later).exp()
        c = keep[..., None, None] * c + add[..., None, None] * k[t][..., :, None] * v[t][..., None, :]
        n, m = keep[..., None] * n + add[..., None] * k[t], later
        scaled = q[t] / q.shape[-1] ** 0.5
        divisor = torch.maximum((scaled * n).sum(-1).abs(), (-m).exp()) + 1e-6
        outputs.append((scaled[..., None] * c).sum(-2) / divisor[..., None])
    h = F.layer_norm(torch.stack(outputs), (width // heads,), eps=1e-6).flatten(-2) * layer.multihead_norm.weight
    return F.linear(torch.sigmoid(F.linear(x, layer.ogate_preact.weight)) * h, layer.out_proj.weight)


def by_equations(body, x):
    y = x if body.up is None else body.up(x)
    for block in body.blocks:
        y = y + matrix_memory(block.mlstm_layer, normed(y, block.norm_mlstm.weight), body.heads)
        z, ffn = normed(y, block.norm_ffn.weight), block.ffn
        y = y + F.linear(
            F.silu(F.linear(z, ffn.proj_up_gate.weight)) * F.linear(z, ffn.proj_up.weight), ffn.proj_down.weight
        )
    y = normed(y, body.norm.weight)
    return y if body.down is None else body.down(y)


@package
@pytest.mark.parametrize(("steps", "batch", "heads"), [(1, 1, 1), (7, 2, 2), (131, 1, 4)])
def test_outputs_and_gradients_are_those_of_the_equations(steps, batch, heads):
    body = make_body("xlstm", 3, hidden_size=16, heads=heads, output_size=5)
    with torch.no_grad():
        for parameter in body.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # gates and norms start with zeros and ones
    x = torch.randn(steps, batch, 3, requires_grad=True)
    found, expected = body(x)[0], by_equations(body, x)
    assert_close(found, expected, 1e-10)
    weights = torch.randn_like(expected)
    inputs = [x, *body.parameters()]
    gradients = [torch.autograd.grad((y * weights).sum(), inputs) for y in (found, expected)]
    assert_close(*gradients, 1e-10)


@package
def test_a_width_must_fit_the_heads():
    with pytest.raises(ValueError, match="hidden_size must be a multiple of twice the 2 heads, got 14"):
        make_body("xlstm", 3, hidden_size=14)


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "xlstm", None)
    monkeypatch.setitem(sys.modules, "xlstm.xlstm_large.model", None)
    with pytest.raises(ImportError, match="needs the xlstm package, of the extra 'xlstm'"):
        make_body("xlstm", 3, hidden_size=16)


@package
def test_a_padded_batch_continues_from_its_own_ends():
    body, x, more = make_body("xlstm", 3, hidden_size=16, heads=2), torch.randn(70, 2, 3), torch.randn(3, 2, 3)
    _, state = body(x, lengths=[70, 5])
    alone = body(torch.cat([x[:5, 1:], more[:, 1:]]))[0][5:]
    assert_close(body(more, state)[0][:, 1:], alone, 1e-12)
    assert all(leaf.shape[1] == 2 for leaf in pytree.tree_leaves(state))
