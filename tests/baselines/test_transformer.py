"""The causal transformer against loops written from the equations."""

import math

import pytest
import torch
from torch import nn

from reference import assert_close, gradients
from trellisnet.baselines.transformer import TransformerBody, rotations


def normed(norm, x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def affine(linear, x):
    return x @ linear.weight.t() + linear.bias


def turned(vector, t):
    """R_t of the channels (B, d) of a head: pair (i, i + d // 2) turns by t / 10000^(i / (d // 2))."""
    half, result = vector.shape[-1] // 2, list(vector.unbind(-1))
    for i in range(half):
        angle = t / 10000 ** (i / half)
        a, b = vector[:, i], vector[:, i + half]
        result[i] = a * math.cos(angle) - b * math.sin(angle)
        result[i + half] = a * math.sin(angle) + b * math.cos(angle)
    return torch.stack(result, -1)


def attention(layer, window, steps):
    read = [affine(layer.read, step).chunk(3, -1) for step in steps]
    outputs = []
    for t in range(len(steps)):
        heads = []
        for head in range(layer.heads):
            q, k, v = ([part.chunk(layer.heads, -1)[head] for part in parts] for parts in zip(*read, strict=True))
            seen = range(max(0, t - window + 1), t + 1)
            scores = [(turned(q[t], t) * turned(k[s], s)).sum(-1) / math.sqrt(q[t].shape[-1]) for s in seen]
            weights = torch.stack(scores).softmax(0)  # (steps, B)
            heads.append(sum(weight[:, None] * v[s] for weight, s in zip(weights, seen, strict=True)))
        outputs.append(affine(layer.write, torch.cat(heads, -1)))
    return outputs


def slow(body, x):
    steps = [step if body.up is None else affine(body.up, step) for step in x]
    for block in body.blocks:
        added = attention(block.attention, body.window, [normed(block.norm, step) for step in steps])
        norm, a, _, b = block.feed_forward
        outputs = []
        for step, new in zip(steps, added, strict=True):
            y = step + new
            inner = affine(a, normed(norm, y))
            outputs.append(y + affine(b, inner * 0.5 * (1 + torch.erf(inner / 2**0.5))))
        steps = outputs
    y = normed(body.norm, torch.stack(steps))
    return y if body.down is None else affine(body.down, y)


@pytest.mark.parametrize(
    ("steps", "batch", "options"),
    [
        (1, 1, {"num_layers": 1}),
        (7, 2, {"num_layers": 2, "output_size": 5}),
        (9, 2, {"num_layers": 2, "window": 4}),
        (5, 1, {"num_layers": 2, "window": 1, "heads": 1}),
        (6, 1, {"input_size": 6, "num_layers": 1, "heads": 6, "feed_forward": 1}),
    ],
)
def test_outputs_and_gradients_are_those_of_the_equations(steps, batch, options):
    body = TransformerBody(**{"input_size": 3, "hidden_size": 6, **options})
    for parameter in body.parameters():
        nn.init.uniform_(parameter, -0.8, 0.8)  # a normalisation begins with 1 and 0, which would hide an error
    x = torch.randn(steps, batch, body.input_size, requires_grad=True)
    y, expected = body(x)[0], slow(body, x)
    assert_close(y, expected)
    tensors = [x, *body.parameters()]
    # a key's bias does not change the softmax: its gradient is a rounding error
    assert_close(gradients(y, *tensors), gradients(expected, *tensors))


def test_long_inputs_are_read_in_pieces():
    body, x = TransformerBody(3, hidden_size=6, num_layers=1, window=5, heads=1), torch.randn(80, 1, 3)
    assert_close(body(x)[0], slow(body, x))


def test_a_stream_without_end_stays_exact():
    """The outputs depend on the last steps only, whatever came before."""
    body, x = TransformerBody(3, hidden_size=6, num_layers=2, window=4), torch.randn(12, 2, 3)
    _, state = body(torch.randn(500, 2, 3))
    assert_close(body(x, state)[0][body.receptive_field - 1 :], body(x)[0][body.receptive_field - 1 :], 1e-12)


def test_half_precision_counts_the_steps():
    """bfloat16 cannot tell step 299 from step 300."""
    exact, half = (rotations(400, 8, torch.zeros(1, dtype=dtype)) for dtype in (torch.float64, torch.bfloat16))
    assert_close(half.double(), exact, 0.005)


def test_what_blocks_add_is_smaller_in_deep_stacks():
    shallow, deep = (TransformerBody(8, hidden_size=8, num_layers=n).blocks[0] for n in (1, 25))
    for of_shallow, of_deep in (
        (shallow.attention.write, deep.attention.write),
        (shallow.feed_forward[3], deep.feed_forward[3]),
    ):
        ratio = of_shallow.weight.abs().max() / of_deep.weight.abs().max()
        assert ratio.item() == pytest.approx(5, rel=0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_size": 7}, "hidden_size must be a multiple of heads = 2, got 7"),
        ({"hidden_size": 6, "window": 0}, "window must be an integer >= 1, got 0"),
        ({"hidden_size": 6, "feed_forward": 0}, "feed_forward must be an integer >= 1, got 0"),
        ({"hidden_size": 6, "heads": 0}, "heads must be an integer >= 1, got 0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        TransformerBody(3, **options)
