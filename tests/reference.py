"""The specification, run with a net's own weights: what every fast path is compared with."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from trellisnet import TrellisNet
from trellisnet.core.naive import Left, naive_trellis

FIXTURES = sorted(path.stem for path in (Path(__file__).parent / "core" / "fixtures").glob("core-*.json"))


def make(input_size=2, **options):
    """A small net of 6 channels and 4 layers."""
    net = TrellisNet(input_size, 6, num_layers=4, **options)
    for parameter in net.parameters():  # larger than the initialisation, so that a wrong gate shows
        nn.init.uniform_(parameter, -0.8, 0.8)
    return net


def naive(net: TrellisNet, x, left: Left | None = None, depth=None, mask=None, path=None, attention=None):
    """All levels of the naive trellis: hidden and memory, each (levels, T, B, H)."""
    depth = depth or net.num_layers
    weight_input, weight_hidden, bias = net.kernel.dense(net.weights())
    widths = None
    if net.staggered:
        widths = [sum(net.staggered[: i + 1]) for i in range(depth)]
    hidden, memory = naive_trellis(
        x,
        weight_input,
        weight_hidden,
        bias,
        net.cell,
        net.state_form.dilations(depth),
        net.inject_every,
        mask,
        widths,
        left,
        path or net.path,
        attention,
    )
    return tuple(torch.stack([torch.stack(level) for level in levels]) for levels in (hidden, memory))


def naive_output(net: TrellisNet, x, **options):
    """(T, B, output), as the net gives it."""
    return naive(net, x, **options)[0][-1][..., net.hidden_size - net.output_size :]


def gradients(output, *tensors, retain=True):
    """Gradients of a fixed random projection of the output; without `retain`, what was kept for them is used up."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    return torch.autograd.grad((output * weights).sum(), tensors, retain_graph=retain, allow_unused=True)


def assert_close(actual, expected, tolerance=1e-10):
    """Compare tensors, or sequences of tensors and None, by their largest absolute difference."""
    if isinstance(actual, torch.Tensor):
        actual, expected = [actual], [expected]
    for pair in zip(actual, expected, strict=True):
        a, b = (torch.zeros(()) if z is None else z for z in pair)
        difference = (a - b).abs()
        assert not difference.numel() or difference.max().item() <= tolerance


def assert_as_specified(net, x, tolerance=1e-10, **call):
    """Compare a net's output, last state and gradients with the specification's."""
    x.requires_grad_()
    y, state = net(x, **call)
    hidden, memory = naive(net, x, **call)
    expected = hidden[-1][..., -net.output_size :]
    assert_close(y, expected, tolerance)
    assert_close(state.last[0], hidden[-1, -1], tolerance)
    if net.cell.has_memory:
        assert_close(state.last[1], memory[-1, -1], tolerance)
    tensors = (x, *net.parameters())
    expected_gradients = gradients(expected, *tensors)
    for retain in (True, False):
        assert_close(gradients(y, *tensors, retain=retain), expected_gradients, tolerance)


def load_fixture(name):
    """Settings and tensors of a recorded run of the authors' code."""
    folder = Path(__file__).parent / "core" / "fixtures"
    return json.loads((folder / f"{name}.json").read_text()), load_file(folder / f"{name}.safetensors")


def from_conv(tensor, hidden_size):
    """A conv kernel (4H, C, k) or bias of the authors' (gates i, o, g, f) in our layout (k, C, 4H) (i, f, o, g)."""
    ours = tensor.unflatten(0, (4, hidden_size))[[0, 3, 1, 2]].flatten(0, 1)
    return ours.permute(2, 1, 0) if ours.dim() == 3 else ours


def fixture_net(settings, tensors, **options):
    """Our net with the weights of a recorded run, and pairs (our parameter, the recorded gradient)."""
    hidden = settings["hidden_size"]
    net = TrellisNet(
        settings["input_size"],
        hidden,
        settings["num_layers"],
        settings["output_size"],
        kernel_size=settings["kernel_size"],
        dilation=settings["dilation"],
        weight_norm=settings["weight_norm"],
        aux_every=settings["aux_every"] or None,
        **options,
    )
    names = {"bias": "bias2"}
    for ours, theirs in (("weight_input", "weight1"), ("weight_hidden", "weight2")):
        if settings["weight_norm"]:
            names[f"parametrizations.{ours}.original0"] = f"{theirs}_g"
            names[f"parametrizations.{ours}.original1"] = f"{theirs}_v"
        else:
            names[ours] = theirs
    with torch.no_grad():
        for ours, theirs in names.items():
            net.kernel.get_parameter(ours).copy_(from_conv(tensors[f"weight.{theirs}"], hidden))
    pairs = [(net.kernel.get_parameter(o), from_conv(tensors[f"grad.{t}"], hidden)) for o, t in names.items()]
    return net, pairs
