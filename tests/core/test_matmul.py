"""Products by oneDNN: equal to torch's own in value and gradient, and used where they should be."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from reference import assert_close
from trellisnet import Seq2Seq, TrellisNet
from trellisnet.core import matmul

SHAPES = [(1, 1, 1), (7, 3, 5), (33, 2, 1), (1, 4, 9)]


@pytest.fixture
def fast(monkeypatch):
    """Every product takes the way through oneDNN, but is computed in double precision; tells the shapes of them."""
    calls = []

    def product(a, b, bias=None):
        calls.append((*a.shape, len(b)))
        return F.linear(a, b, bias)

    monkeypatch.setattr(matmul, "_fits", lambda a, b: True)
    monkeypatch.setattr(matmul, "_onednn", product)
    monkeypatch.setattr(matmul, "BLOCK", 20)
    return calls


@pytest.mark.skipif(not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch was built without oneDNN")
@pytest.mark.parametrize("shape", SHAPES)
def test_onednn_multiplies_views_of_any_strides(shape):
    rows, inner, columns = shape
    a, b = torch.randn(2 * rows, inner), torch.randn(inner, columns)
    expected = a[::2] @ b
    for left, right in ((a[::2], b), (a[::2].t().contiguous().t(), b.t().contiguous().t())):
        found = matmul._onednn(left.float(), right.float().t())
        assert_close(found.double(), expected, 1e-5)  # it computes in single precision only
        assert found.is_contiguous()
    bias = torch.randn(columns)
    assert_close(matmul._onednn(a.float(), b.float().t(), bias.float()).double(), a @ b + bias, 1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_written_and_added_in_blocks(fast, shape):
    rows, inner, columns = shape
    a, b, total = torch.randn(rows, inner), torch.randn(inner, columns), torch.randn(rows, columns)
    expected = total + a @ b
    matmul.addmm_(total, a, b)
    assert_close(total, expected)
    assert_close(matmul.mm(a, b), a @ b)
    assert matmul.mm(a, b, total) is total
    assert_close(total, a @ b)
    assert fast


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_map_and_all_its_gradients(fast, bias):
    layer = matmul.Linear(5, 3, bias=bias)
    x, weight = torch.randn(4, 2, 5, requires_grad=True), torch.randn(4, 2, 3)
    tensors = (x, *layer.parameters())
    found = layer(x)
    expected = F.linear(x, layer.weight, layer.bias)
    assert_close(found, expected)
    results = [torch.autograd.grad((weight * y).sum(), tensors, create_graph=True) for y in (found, expected)]
    assert len(fast) == 1  # second derivatives need ordinary operations
    assert_close(*results)
    assert_close(*(torch.autograd.grad(sum((g**2).sum() for g in grads), tensors[:2]) for grads in results))
    assert_close(torch.autograd.grad((weight * layer(x)).sum(), tensors), results[1])
    assert len(fast) == 4
    layer.eval()(x)
    assert len(fast) == 4
    assert isinstance(layer, nn.Linear)


@pytest.mark.parametrize("path", ["layers", "sweeps"])
@pytest.mark.parametrize(("steps", "batch"), [(7, 3), (1, 1)])
def test_a_trellis_and_all_its_gradients(fast, monkeypatch, path, steps, batch):
    net = TrellisNet(3, 4, num_layers=3, path=path)
    x = torch.randn(steps, batch, 3, requires_grad=True)
    tensors = (x, *net.parameters())

    def run():
        y, _ = net(x)
        return y.detach(), *torch.autograd.grad((y**2).sum(), tensors)

    found = run()
    assert fast
    monkeypatch.setattr(matmul, "_fits", lambda a, b: False)
    assert_close(found, run())


@pytest.mark.parametrize("body", ["trellis", "transformer"])
def test_a_translator_and_all_its_gradients(fast, monkeypatch, body):
    model = Seq2Seq(9, 7, 4, body=body, hidden_size=4, num_layers=2, attention_heads=2)
    source, target = torch.randint(9, (3, 5)), torch.randint(7, (3, 4))
    target[1, 2:] = -100
    found, wanted = [], []
    for results in (found, wanted):
        loss = model(source, target, [5, 1, 3], predict=False).loss
        results += [loss.detach(), *torch.autograd.grad(loss, tuple(model.parameters()))]
        assert fast
        monkeypatch.setattr(matmul, "_fits", lambda a, b: False)
    assert_close(found, wanted)


def test_only_large_products_in_single_precision_take_it(monkeypatch):
    monkeypatch.setattr(matmul, "prefers_onednn", lambda: True)
    monkeypatch.setattr(matmul, "SMALL", 60)
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    assert not matmul._fits(a, b)
    assert matmul._fits(a.float(), b.float())
    assert not matmul._fits(a.float()[:2], b.float())
    assert not matmul._fits(a.float().to("meta"), b.float().to("meta"))
