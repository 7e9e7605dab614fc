"""Layers until they converge: the fixed point, its gradients, and its state, in float64."""

import pytest
import torch

from reference import assert_close, gradients, make
from trellisnet import TrellisNet
from trellisnet.core.forms import counting_iterations


@pytest.mark.parametrize(
    "options", [{}, {"cell": "gru"}, {"cell": "coupled", "hidden_taps": 1}, {"kernel_size": 3}], ids=str
)
def test_all_paths_meet_at_the_fixed_point(options):
    net, x = TrellisNet(3, 12, 4, **options), torch.randn(20, 2, 3)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.5)
    outputs = [net(x, depth=200, path=path)[0] for path in ("layers", "sweeps", "steps")]
    for other in outputs[1:]:
        assert (outputs[0] - other).abs().max() <= 1e-6
    for path in ("layers", "sweeps", "steps"):
        y, state = net(x, depth="converged", tolerance=1e-9, path=path)
        assert (y - outputs[0]).abs().max() <= 1e-6
        assert len(state.iterations) == (20 if path == "steps" else 1)
        assert 1 < max(state.iterations) < 200


def test_gradients_at_the_fixed_point_are_those_of_the_last_layers():
    for path in ("layers", "sweeps", "steps"):
        net = TrellisNet(3, 6, 4, path=path, tolerance=1e-12, phantom_layers=60)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(0.5)
        net.num_layers = 200
        x = torch.randn(5, 2, 3, requires_grad=True)
        tensors = (x, *net.parameters())
        y, _ = net(x)
        deep, _ = net(x, depth=200)
        assert_close(y, deep, 1e-10)
        assert_close(gradients(y, *tensors), gradients(deep, *tensors), 1e-8)  # 0.5^60 is left of the other layers
        net.phantom_layers = 1
        few = gradients(net(x)[0], *tensors)
        assert max((a - b).abs().max() for a, b in zip(few, gradients(deep, *tensors), strict=True)) > 1e-4


def test_a_converged_call_continues_from_its_state():
    net, x = TrellisNet(3, 6, 4, kernel_size=3), torch.randn(9, 2, 3)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.5)
        for path in ("layers", "sweeps", "steps"):
            call = {"depth": "converged", "tolerance": 1e-12, "path": path}
            whole, _ = net(x, **call)
            first, state = net(x[:4], **call)
            second, state = net(x[4:5], state, **call)
            third, _ = net(x[5:], state, **call)
            assert state.spans == (2,)
            assert_close(torch.cat([first, second, third]), whole)
            assert_close(net(x, lengths=[9, 4], tail=2, **call)[0][:, 1], whole[2:4, 1])


@pytest.mark.parametrize("path", ["layers", "sweeps", "steps"])
def test_an_iteration_has_at_most_so_many_layers_with_and_without_gradients(path):
    net, x = make(path=path, memory="recompute"), torch.randn(6, 2, 2)
    for most in (2, 4, 7):
        y, state = net(x, depth="converged", tolerance=0.0, max_depth=most)
        assert set(state.iterations) == {most}
        with torch.no_grad():
            assert_close(net(x, depth="converged", tolerance=0.0, max_depth=most)[0], y, 1e-12)
        assert_close(y, net(x, depth=most)[0], 1e-12)


def test_a_net_without_tolerance_for_change_uses_all_its_layers():
    net = make(tolerance=0.0)
    _, state = net(torch.randn(6, 2, 2), depth="converged", max_depth=30)
    assert state.iterations == (30,)


@pytest.mark.filterwarnings("ignore:`torch.jit", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("path", ["layers", "sweeps", "steps"])
def test_a_fixed_point_cannot_be_exported(path):
    net, x = make(path=path, tolerance=1e-3), torch.randn(4, 2, 2)
    for trace in (lambda: torch.export.export(net, (x,)), lambda: torch.jit.trace(net, (x,))):
        with pytest.raises(ValueError, match=r"tolerance cannot be exported.* set net.tolerance = None"):
            trace()
    net.tolerance = None
    assert_close(torch.export.export(net, (x,)).module()(x)[0], net(x)[0])


def test_iterations_are_counted_of_all_calls_that_converge():
    net, x = TrellisNet(3, 6, 4, path="sweeps"), torch.randn(9, 2, 3)
    call = {"depth": "converged", "tolerance": 1e-6}
    with counting_iterations() as counts:
        _, state = net(x, **call)
        net(x)  # stops at its depth
        with counting_iterations() as inner:
            net(x, **call, tail=1)  # returns no state
        _, by_steps = net(x, **call, path="steps")
    net(x, **call)
    assert inner == list(state.iterations)
    assert counts == [*state.iterations, *by_steps.iterations]
    assert len(by_steps.iterations) == len(x)
