"""How a call can run: in place, with ordinary operations, compiled, traced, under autocast. All give the same."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from reference import assert_close, gradients
from trellisnet import TrellisNet
from trellisnet.core import engine
from trellisnet.core.engine import plain, step


@pytest.fixture
def paths(monkeypatch):
    """How the calls of a test are run, by name."""
    taken = []

    def watch(module, function, name):
        original = getattr(module, function)
        monkeypatch.setattr(module, function, lambda *args: taken.append(name) or original(*args))

    watch(plain, "run", "plain")
    watch(step, "run", "step")
    watch(engine._InPlace, "apply", "in place")
    return taken


@pytest.mark.parametrize(
    "options", [{}, {"groups": (2, 3)}, {"cell": "gru", "dilation": (1, 4), "inject_every": 2}], ids=str
)
@pytest.mark.parametrize("call", [{}, {"tail": 2}, {"lengths": [7, 3]}], ids=str)
def test_ordinary_operations_equal_the_in_place_walk(monkeypatch, options, call):
    net = TrellisNet(3, 5, 4, aux_every=2, hidden_dropout=0.2, **options)
    mask = net._mask(torch.zeros(7, 2, 3))
    monkeypatch.setattr(net, "_mask", lambda x: mask)
    x = torch.randn(7, 2, 3, requires_grad=True)
    _, before = net(torch.randn(4, 2, 3))
    before = before.detach()
    before.h.requires_grad_()
    before.c.requires_grad_()
    tensors = (x, before.h, before.c, *net.parameters())
    results = []
    for needed in (False, True):
        monkeypatch.setattr(engine, "needs_ordinary_operations", lambda _, needed=needed: needed)
        y, state, aux = net(x, before, aux=True, **call)
        outputs = [y, aux] if state is None else [y, aux, state.h, state.c]
        grads = [gradients(output, *tensors) for output in outputs]
        results.append((outputs, [g for grad in grads for g in grad]))
    assert_close(results[0][0], results[1][0], 1e-12)
    assert_close(results[0][1], results[1][1])


def test_double_backward_is_found_by_itself(paths):
    net = TrellisNet(3, 5, 4)
    x = torch.randn(6, 2, 3, requires_grad=True)
    y, _ = net(x)
    (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    gradient.square().sum().backward()
    assert paths == ["in place", "plain"]
    expected = torch.autograd.functional.hvp(
        lambda z: plain_output(net, z).square().sum(), x.detach(), 2 * gradient.detach()
    )
    assert_close(x.grad, expected[1])


def plain_output(net, x):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "needs_ordinary_operations", lambda _: True)
        return net(x)[0]


def test_torch_func_takes_ordinary_operations(paths):
    net = TrellisNet(3, 5, 4)
    x = torch.randn(4, 6, 2, 3)  # four batches
    expected = torch.stack([net(batch)[0] for batch in x])
    assert_close(torch.func.vmap(lambda batch: net(batch)[0])(x), expected, 1e-12)
    weights = dict(net.named_parameters())

    def loss(weights):
        return torch.func.functional_call(net, weights, (x[0],))[0].square().sum()

    found = torch.func.grad(loss)(weights)
    expected_grads = torch.autograd.grad(loss(weights), list(weights.values()))
    assert_close(list(found.values()), expected_grads)
    _, tangent = torch.func.jvp(lambda z: net(z)[0].square().sum(), (x[0],), (torch.ones_like(x[0]),))
    z = x[0].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(net(z)[0].square().sum(), z)
    assert_close(tangent, gradient.sum())
    assert "plain" in paths


def test_what_a_tracer_sees_is_not_cached():
    net, x = TrellisNet(3, 6, 4).requires_grad_(False), torch.randn(1, 2, 3)
    expected = net(x)[0]
    traced = make_fx(lambda x: net(x)[0], tracing_mode="symbolic", _allow_non_fake_inputs=True)(x)
    assert_close([traced(x)], [expected], 1e-12)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        assert isinstance(net(mode.from_tensor(x))[0], FakeTensor)
    with torch.no_grad():
        assert_close([net(x)[0]], [expected], 1e-12)


def test_compile_and_export_take_ordinary_operations():
    net = TrellisNet(3, 5, 4, dilation=(1, 2)).eval()
    x = torch.randn(6, 2, 3)
    expected, _ = net(x)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    assert_close(compiled(x)[0], expected, 1e-12)
    exported = torch.export.export(net, (x,), {"tail": 3})
    assert_close(exported.module()(x, tail=3)[0], expected[-3:], 1e-12)
    targets = {node.target for node in exported.graph.nodes if node.op == "call_function"}
    assert all("aten" in str(target) for target in targets if "getitem" not in str(target))


def test_single_steps_without_gradients_stream(paths):
    net = TrellisNet(3, 5, 4)
    x = torch.randn(1, 2, 3)
    net(x)
    with torch.no_grad():
        _, state = net(x)
        net(x, state)
        net(x, state, tail=1)
    assert paths == ["in place", "step", "step", "in place"]


def test_autocast_and_half_precision_on_a_cpu_compute_in_single_precision():
    net = TrellisNet(3, 5, 4, dtype=torch.float32)
    x = torch.randn(6, 2, 3, dtype=torch.float32)
    expected, _ = net(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, state = net(x)
        step, _ = net(x[:1], state)
        y.float().sum().backward()
    assert y.dtype == step.dtype == torch.bfloat16
    assert_close(y.double(), expected.double(), 1e-2)
    assert net.kernel.bias.grad.dtype == torch.float32
    half = net.bfloat16()
    y, _ = half(x.bfloat16())
    assert y.dtype == torch.bfloat16
    assert_close(y.double(), expected.double(), 3e-2)


def test_autocast_leaves_double_precision_alone_and_takes_no_integers():
    net, x = TrellisNet(3, 5, 4), torch.randn(6, 2, 3)
    expected = net(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(net(x)[0], expected, 0.0)
        assert net(x)[0].dtype == nn.LSTM(3, 5)(x)[0].dtype == torch.float64
        for bad in (x.long(), x > 0):
            with pytest.raises(ValueError, match=f"dtype of the net.*{bad.dtype}"):
                net(bad)


def test_a_training_step_under_autocast_with_working_units():
    """The whole way with bfloat16 products elsewhere in the model, in a process whose CPU units are limited."""
    code = """
import torch, trellisnet
torch.manual_seed(0)
net = trellisnet.TrellisNet(8, 16, 4)
head = torch.nn.Linear(16, 4)
with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = head(net(torch.randn(6, 2, 8))[0]).float().square().mean()
loss.backward()
assert all(p.grad.isfinite().all() for p in [*net.parameters(), *head.parameters()])
"""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)


def test_import_needs_no_extension_and_leaves_denormals_alone():
    code = """
import sys, trellisnet, torch
assert torch.tensor([1e-310], dtype=torch.float64).mul(1.0).item() != 0
assert not any(name.startswith(("hypothesis", "pytorch_tcn", "torch._inductor.codecache")) for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize(
    "options", [{"inject_every": 2}, {"groups": (2, 3)}, {}, {"cell": "gru", "bias": False}], ids=str
)
def test_differentiable_gradients_are_the_same_gradients(options):
    net = TrellisNet(3, 5, 4, **options)
    x = torch.randn(6, 2, 3, requires_grad=True)
    y, _ = net(x, net(x)[1])
    tensors = [x, *net.parameters()]
    expected = torch.autograd.grad(y.sum(), tensors, retain_graph=True)
    assert_close(torch.autograd.grad(y.sum(), tensors, create_graph=True), expected)


def test_batched_gradients():
    net = TrellisNet(3, 5, 4)
    x = torch.randn(6, 2, 3)
    rows = torch.autograd.functional.jacobian(lambda z: net(z, tail=1)[0], x)
    assert_close(torch.autograd.functional.jacobian(lambda z: net(z, tail=1)[0], x, vectorize=True), rows)


def test_plans_made_in_inference_mode_serve_training():
    net = TrellisNet(3, 5, 6, dilation=(1, 1, 2, 4, 8))
    x = torch.randn(19, 2, 3)
    with torch.inference_mode():
        net(x, tail=1)
        _, state = net(x[:1], net(x)[1])
        net(x[:1], state)
    with torch.no_grad():
        net(x[:1], net(x)[1])
    net(x.requires_grad_(), tail=1)[0].sum().backward()
    assert x.grad.abs().sum() > 0


def test_a_state_goes_through_export_and_vmap(tmp_path):
    net = TrellisNet(3, 5, 4).eval()
    x = torch.randn(6, 2, 3)
    with torch.no_grad():
        _, state = net(x)
    exported = torch.export.export(net, (x, state))
    torch.export.save(exported, tmp_path / "net.pt2")
    expected, expected_state = net(x, state)
    for program in (exported, torch.export.load(tmp_path / "net.pt2")):
        again, after = program.module()(x, state)
        assert_close(
            (again, after.h, after.c, after.x), (expected, expected_state.h, expected_state.c, expected_state.x), 1e-12
        )
    _, states = torch.func.vmap(net)(torch.stack([x, 2 * x]))
    assert_close(states.h[0], state.h, 1e-12)


def test_shapes_on_the_meta_device():
    net = TrellisNet(3, 5, 4, device="meta")
    y, state = net(torch.empty(6, 2, 3, device="meta"))
    assert y.shape == (6, 2, 5)
    assert state.h.is_meta
