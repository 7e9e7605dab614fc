"""The three ways through the grid against the specification: outputs, states and all gradients, in float64."""

from itertools import product

import pytest
import torch
from torch import nn

from reference import assert_as_specified, assert_close, gradients, make, naive
from trellisnet import AffineCell, TrellisNet
from trellisnet.core.naive import Left


class Highway(AffineCell):
    """A cell of the user's own that sweeps can run."""

    gates = 2

    def activate(self, pre):
        candidate, gate = pre.unbind(-2)
        return candidate.tanh(), gate.sigmoid()

    def affine(self, gates):
        candidate, gate = gates
        return 1 - gate, gate * candidate

    def expose(self, gates, memory):
        return 2 * memory


CELLS = {"lstm": "lstm", "coupled": "coupled", "gru": "gru", "highway": "highway", "own": Highway()}
OPTIONS = {
    "plain": {},
    "recompute": {"memory": "recompute"},
    "kernel 3": {"kernel_size": 3},
    "dilated": {"dilation": 2},
    "dilations": {"dilation": (4, 1, 2)},
    "dilation beyond T": {"dilation": (64, 2)},
    "kernel 4, dilated": {"kernel_size": 4, "dilation": (1, 3), "memory": "recompute"},
    "one hidden tap": {"hidden_taps": 1},
    "two of three hidden taps": {"kernel_size": 3, "hidden_taps": 2, "dilation": (1, 2)},
    "no hidden taps": {"hidden_taps": 0},
    "some injected": {"inject_every": 2, "bias": False},
    "weight norm": {"weight_norm": True, "output_size": 3},
    "groups": {"groups": (2, 1, 3), "output_size": 3},
    "groups, some injected": {"groups": (2, 4), "inject_every": 2, "dilation": (1, 2)},
    "staggered": {"staggered": (2, 1, 3)},
}
PATHS = ["sweeps", "steps"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_equals_specification(cell, options, path):
    for input_size in (2, 20):  # narrow and wide
        assert_as_specified(make(input_size, cell=cell, path=path, **options), torch.randn(7, 3, input_size))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (1, 3), (2, 1), (5, 1), (13, 2)])
def test_equals_specification_at_odd_sizes(steps, batch, path):
    assert_as_specified(make(3, dilation=(1, 2), path=path), torch.randn(steps, batch, 3))


@pytest.mark.parametrize("cell", ["tanh", "relu"])
def test_steps_run_cells_without_a_memory(cell):
    assert_as_specified(make(cell=cell, path="steps"), torch.randn(7, 3, 2))


@pytest.mark.parametrize("tiles", [1, 100])
@pytest.mark.parametrize("options", [{}, {"groups": (2, 4)}, {"kernel_size": 3, "dilation": (2, 3)}], ids=str)
@pytest.mark.parametrize("paired", [False, True])
def test_tiles_and_pairs_change_nothing_in_a_sweep(monkeypatch, options, tiles, paired):
    monkeypatch.setattr("trellisnet.core.engine.tiles.TILE", tiles)
    monkeypatch.setattr("trellisnet.core.engine.tiles.TILE_ROWS", 1)
    monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED", 1 if paired else 10**6)
    monkeypatch.setattr("trellisnet.core.engine.pairs.PAIRED_WIDTH", 1)
    for memory, cell in product(("store", "recompute"), ("lstm", "coupled", "gru")):
        net = make(cell=cell, memory=memory, path="sweeps", **options)
        assert_as_specified(net, torch.randn(9, 2, 2), depth=3)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("options", [{}, {"kernel_size": 3, "dilation": (3, 1, 2)}, {"groups": (2, 4)}], ids=str)
def test_contexts_reach_every_level_with_gradients(options, path):
    net = make(path=path, **options)
    x = torch.randn(11, 2, 2, requires_grad=True)
    whole, _ = net(x)
    first, state = net(x[:4])
    second, state = net(x[4:5], state)
    third, _ = net(x[5:], state)
    chunked = torch.cat([first, second, third])
    assert_close(chunked, whole, 1e-12)
    tensors = (x, *net.parameters())
    assert_close(gradients(chunked, *tensors), gradients(whole, *tensors))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cell": "gru", "kernel_size": 3, "dilation": (3, 1)},
        {"groups": (2, 4)},
        {"cell": "coupled", "hidden_taps": 1},
    ],
    ids=str,
)
def test_step_by_step_equals_one_call(options, path):
    net, x = make(path=path, aux_every=2, **options), torch.randn(9, 2, 2)
    with torch.no_grad():
        whole, end, aux = net(x, aux=True)
        state, steps, inner = None, [], []
        for t in range(9):
            y, state, levels = net(x[t : t + 1], state, aux=True)
            steps.append(y)
            inner.append(levels)
    assert_close(torch.cat(steps), whole, 1e-12)
    assert_close(torch.cat(inner, 1), aux, 1e-12)
    assert_close((state.h, state.c, state.x), (end.h, end.c, end.x), 1e-12)


@pytest.mark.parametrize("path", PATHS)
def test_lengths_and_tails(path):
    net, x, lengths = make(path=path, dilation=(1, 2)), torch.randn(9, 3, 2), [9, 2, 5]
    y, state = net(x, lengths=lengths)
    last, none = net(x, lengths=lengths, tail=2)
    assert none is None
    for row, n in enumerate(lengths):
        alone, after = net(x[:n, row : row + 1])
        assert_close(y[:n, row : row + 1], alone, 1e-12)
        assert not y[n:, row].any()
        assert_close(last[:, row], alone[-2:, 0], 1e-12)
        assert_close(state.select([row]).h, after.h, 1e-12)
    assert_close(net(x, tail=3)[0], net(x)[0][-3:], 1e-12)
    assert_close(net(x, lengths=[7, 7, 7], tail=3)[0], net(x)[0][4:7], 1e-12)


@pytest.mark.parametrize("path", PATHS)
def test_aux_outputs_are_those_of_the_levels(path):
    net, x = make(path=path, aux_every=1, output_size=3), torch.randn(6, 2, 2)
    _, _, aux = net(x, aux=True)
    assert_close(aux, naive(net, x)[0][1:, ..., -3:])


def test_dropout_masks_the_hidden_state_of_a_sweep(monkeypatch):
    for path in PATHS:
        net, x = make(path=path, hidden_dropout=0.5), torch.randn(6, 3, 2)
        mask = net._mask(x)
        monkeypatch.setattr(net, "_mask", lambda _, mask=mask: mask)
        assert_close(net(x)[0], naive(net, x, mask=mask)[0][-1])


def test_steps_are_windows_of_one_step_with_repackaged_history():
    net, x = make(), torch.randn(8, 2, 2)
    outputs, state = [], None
    for t in range(8):
        y, state = net(x[t : t + 1], None if state is None else _with_x(state.repackage(), x[t - 1 : t]))
        outputs.append(y)
    assert_close(net(x, path="steps")[0], torch.cat(outputs), 1e-12)


def _with_x(state, x):
    return type(state)(state.h, state.c, x, state.spans)


def test_one_path_continues_from_the_state_of_another():
    net, x = make(), torch.randn(9, 2, 2)
    _, by_layers = net(x[:5])
    _, by_sweeps = net(x[:5], path="sweeps")
    assert by_layers.spans == by_sweeps.spans
    hidden, memory = naive(net, x[:5])
    left = Left(x[:5], {4: hidden[4]}, {4: memory[4]})
    expected = naive(net, x[5:], left, path="steps")[0][-1]
    assert_close(net(x[5:], by_layers, path="steps")[0], expected)
    left = Left(x[:5], dict(enumerate(hidden)), dict(enumerate(memory)))
    assert_close(net(x[5:], by_layers, path="sweeps")[0], naive(net, x[5:], left, path="sweeps")[0][-1])


def test_a_sweep_without_hidden_weights_is_a_qrnn():
    """fo-pooling with windows of two inputs: Bradbury et al., 2017, equations 1 to 4, F gating the old value."""
    net, x = make(cell="coupled", path="sweeps", hidden_taps=0), torch.randn(9, 2, 2)
    older, newest = net.kernel.weight_input
    before = torch.cat([torch.zeros(1, 2, 2), x[:-1]])
    f, o, z = (before @ older + x @ newest + net.kernel.bias).chunk(3, -1)
    c, outputs = torch.zeros(2, 6), []
    for t in range(9):
        c = f[t].sigmoid() * c + (1 - f[t].sigmoid()) * z[t].tanh()
        outputs.append(o[t].sigmoid() * c)
    assert_close(net(x, depth=1)[0], torch.stack(outputs))


def test_one_older_tap_and_many_sweeps_are_an_lstm():
    """With the hidden state of the step before only, the fixed point is reached after as many sweeps as steps."""
    lstm, x = nn.LSTM(2, 6), torch.randn(7, 3, 2)
    net = TrellisNet(2, 6, 7, path="sweeps", hidden_taps=1)
    with torch.no_grad():
        order = [0, 1, 3, 2]  # torch: input, forget, candidate, output

        def reordered(rows):
            return rows.unflatten(0, (4, 6))[order].flatten(0, 1)

        net.kernel.weight_input[0] = 0
        net.kernel.weight_input[1] = reordered(lstm.weight_ih_l0).t()
        net.kernel.weight_hidden[0] = reordered(lstm.weight_hh_l0).t()
        net.kernel.bias.copy_(reordered(lstm.bias_ih_l0 + lstm.bias_hh_l0))
    assert_close(net(x)[0], lstm(x)[0], 1e-12)


@pytest.mark.parametrize("path", PATHS)
def test_ordinary_operations_serve_tracing(path):
    net = TrellisNet(3, 5, 3, path=path).eval()
    x = torch.randn(6, 2, 3)
    expected, _ = net(x)
    exported = torch.export.export(net, (x,))
    assert_close(exported.module()(x)[0], expected, 1e-12)
    assert torch.autograd.gradgradcheck(lambda z: net(z)[0], x[:3].clone().requires_grad_(), fast_mode=True)


@pytest.mark.parametrize("path", PATHS)
def test_the_whole_past_is_seen(path):
    net, x = TrellisNet(2, 4, 1, path=path), torch.randn(40, 1, 2, requires_grad=True)
    assert net.receptive_field is None
    assert net.receptive_field_at(3) is None
    net(x)[0][-1].sum().backward()
    assert x.grad[0].abs().min() > 0


@pytest.mark.parametrize(
    ("options", "call", "message"),
    [
        ({"path": "sweep"}, {}, "path must be one of 'layers', 'sweeps', 'steps', got 'sweep', did you mean 'sweeps'"),
        ({}, {"path": "diagonal"}, "path must be one of"),
        ({"path": "sweeps", "cell": "tanh"}, {}, "path='sweeps' needs a cell whose memory is affine.*TanhCell"),
        ({}, {"depth": "deep"}, "depth must be one of 'converged', got 'deep'"),
        ({}, {"depth": 3, "tolerance": 0.1}, "tolerance belongs to depth='converged', got depth=3"),
        ({}, {"depth": "converged", "tolerance": -1}, "tolerance must be a number >= 0, got -1"),
        ({}, {"depth": "converged", "max_depth": 0}, "max_depth must be an integer >= 1, got 0"),
        ({}, {"depth": 3, "max_depth": 5}, "max_depth belongs to depth='converged', got depth=3 and max_depth=5"),
        ({"dilation": (1, 2)}, {"depth": "converged"}, r"need one dilation for all layers, got dilation=\(1, 2\)"),
        ({"inject_every": 2}, {"depth": "converged"}, "need the input in every layer, got inject_every=2"),
        ({"aux_every": 2, "tolerance": 0.1}, {"aux": True}, "need aux=False"),
        ({"hidden_taps": 3}, {}, "hidden_taps must be at most kernel_size = 2, got 3"),
        ({"hidden_taps": -1}, {}, "hidden_taps must be an integer >= 0, got -1"),
        ({"hidden_taps": 1, "groups": (4, 2)}, {}, "hidden_taps must be None with groups, got 1"),
        ({"phantom_layers": 0}, {}, "phantom_layers must be an integer >= 1, got 0"),
    ],
    ids=str,
)
def test_bad_paths_and_depths_are_named(options, call, message):
    with pytest.raises(ValueError, match=message):
        TrellisNet(2, 6, 4, **options)(torch.randn(4, 1, 2), **call)


def test_weight_norm_without_hidden_taps_trains():
    net = TrellisNet(3, 6, 2, hidden_taps=0, weight_norm=True, path="sweeps")
    net(torch.randn(5, 2, 3))[0].sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in net.parameters() if parameter.grad is not None)
    assert net.kernel.weight_norm


@pytest.mark.parametrize(
    ("affine", "message"),
    [
        (lambda gate: gate, "cell Wrong: affine must return a factor and an offset"),
        (lambda gate: (gate[:1], gate[..., :2]), r"cell Wrong: affine must return .* of shape \(5, 2, 6\)"),
    ],
)
def test_what_an_affine_cell_returns_is_checked(affine, message):
    class Wrong(Highway):
        def affine(self, gates):
            return affine(gates[0])

    with pytest.raises(ValueError, match=message):
        TrellisNet(2, 6, 2, cell=Wrong(), path="sweeps")(torch.randn(5, 2, 2))


def test_an_assigned_path_is_checked():
    net = make()
    net.path = "sweep"
    with pytest.raises(ValueError, match="path must be one of"):
        net(torch.randn(4, 1, 2))
