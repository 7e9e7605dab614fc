"""The iteration of one layer: in place, with ordinary operations, and as many layers of an ordinary call."""

import pytest
import torch

from reference import assert_close, make

OPTIONS = {
    "plain": {},
    "narrow input": {"input_size": 2},
    "kernel 3, dilated": {"kernel_size": 3, "dilation": 2},
    "gru": {"cell": "gru"},
    "coupled, one hidden tap": {"cell": "coupled", "hidden_taps": 1},
    "no bias": {"bias": False},
    "groups": {"groups": (2, 4)},
}


@pytest.mark.parametrize("path", ["layers", "sweeps"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("small", [False, True])
def test_iterations_are_layers(monkeypatch, options, path, small):
    """Also with tiles of one step, and pairs of steps."""
    if small:
        monkeypatch.setattr("trellisnet.core.engine.tiles.TILE", 1)
        monkeypatch.setattr("trellisnet.core.engine.tiles.TILE_ROWS", 4)
    monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED", 1 if small else 10**9)
    monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED_WIDTH", 1)
    net = make(**{"input_size": 20, **options}, path=path)
    net.staggered = None  # a call of n layers would leave out the groups that are zero in the first of them
    net.phantom_layers = 2
    x = torch.randn(9, 2, net.input_size)
    _, state = net(x[:3], depth="converged", tolerance=0.0, max_depth=6)
    call = {"depth": "converged", "tolerance": 0.0, "max_depth": 7, "lengths": [6, 4]}
    for before in (None, state):
        y, after = net(x[3:], before, **call)
        assert after.iterations == (7,)
        assert_close(y, net(x[3:], before, depth=7, lengths=[6, 4])[0], 1e-12)
        with monkeypatch.context() as patch:
            patch.setattr("trellisnet.core.engine.needs_ordinary_operations", lambda _: True)
            slow, end = net(x[3:], before, **call)
        assert_close((y, after.h, after.c, after.x), (slow, end.h, end.c, end.x), 1e-12)


@pytest.mark.parametrize("path", ["layers", "sweeps"])
def test_the_input_is_multiplied_once(monkeypatch, path):
    from trellisnet.core.engine.products import Products  # noqa: PLC0415 (patched here only)

    calls, multiply = [], Products._multiply
    monkeypatch.setattr(Products, "_multiply", lambda self, *rest: calls.append(rest) or multiply(self, *rest))
    net = make(input_size=20, path=path, phantom_layers=1)
    with torch.no_grad():
        net(torch.randn(9, 2, 20), depth="converged", tolerance=0.0, max_depth=30)
    assert len(calls) == 2  # for 29 iterations, and for the last layer


def test_an_iteration_ends_at_the_first_small_change():
    net, x = make(path="sweeps", phantom_layers=1), torch.randn(5, 2, 2)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.3)
        outputs = [net(x, depth=n)[0] for n in range(1, 12)]
        changes = [(b - a).abs().max().item() for a, b in zip([torch.zeros(5, 2, 6), *outputs], outputs, strict=False)]
        for count, change in enumerate(changes, 1):
            _, state = net(x, depth="converged", tolerance=1.0001 * change)
            assert state.iterations == (count + 1,)


def test_what_is_not_a_number_is_no_convergence():
    net = make(path="sweeps", phantom_layers=1)
    _, state = net(torch.full((3, 1, 2), float("nan")), depth="converged", max_depth=5)
    assert state.iterations == (5,)
