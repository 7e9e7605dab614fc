"""Recurrent bodies against loops over layers and steps, with the step of a layer written from its equations."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from reference import assert_close, gradients
from trellisnet.models.body import select_rows


def slow_stack(step, body, x, state):
    """Every layer, step by step: `y, states = step(layer, x[t], states, mask)`; the output and the last states.

    In training mode the dropout masks are drawn as the body draws them: per layer, of its input and its hidden state.
    """
    ends = []
    for index, layer in enumerate(body.layers):
        if index and body.training:
            x = x * F.dropout(torch.ones_like(x[0]), body.dropout)
        states = [tensor.chunk(len(body.layers))[index] for tensor in state]
        states = [rows[0] if len(rows) == 1 else rows for rows in states]
        mask = torch.ones_like(states[0])
        if body.training:
            mask = F.dropout(mask, getattr(body, "hidden_dropout", 0.0))
        steps = []
        for row in x:
            y, states = step(layer, row, states, mask)
            steps.append(y)
        x = torch.stack(steps)
        ends.append([rows if rows.dim() == 3 else rows[None] for rows in states])
    y = x if body.down is None else x @ body.down.weight.t() + body.down.bias
    return y, tuple(torch.cat(kind) for kind in zip(*ends, strict=True))


def assert_equals_loop(body, slow, steps=7, batch=3, start=None):
    """Compare outputs, states and all gradients with `slow(body, x, state)`, from the start and from any state."""
    x = torch.randn(steps, batch, body.input_size, requires_grad=True)
    begun = pytree.tree_map(torch.zeros_like, body(x)[1]) if start is None else start
    states = [begun, pytree.tree_map(lambda tensor: torch.randn_like(tensor).requires_grad_(), begun)]
    for given, known in ((None, states[0]), (states[1], states[1])):
        torch.manual_seed(1)
        y, after = body(x, given)
        torch.manual_seed(1)
        expected, last = slow(body, x, known)
        assert_close(y, expected)
        assert_close(pytree.tree_leaves(after), pytree.tree_leaves(last))
        tensors = [x, *body.parameters(), *([] if given is None else pytree.tree_leaves(given))]
        found, right = (
            gradients(torch.cat([part.flatten() for part in (out, *pytree.tree_leaves(end))]), *tensors)
            for out, end in ((y, after), (expected, last))
        )
        assert_close(found, right)


def assert_chunks_equal_the_whole(body, steps=11):
    x = torch.randn(steps, 2, body.input_size)
    whole, last = body(x)
    for size in (1, 2, 3, 4, 9):
        parts, state = [], None
        for chunk in x.split(size):
            y, state = body(chunk, state)
            parts.append(y)
        assert_close(torch.cat(parts), whole, 1e-12)
        assert_close(pytree.tree_leaves(state), pytree.tree_leaves(last), 1e-12)


def assert_padding_changes_nothing(body):
    """Unequal lengths in one call equal one call per sequence, also in the gradients, whatever the padding contains."""
    x, lengths = torch.randn(9, 3, body.input_size), [9, 1, 4]
    _, state = body(torch.randn(5, 3, body.input_size))
    state = pytree.tree_map(torch.Tensor.detach, state)
    padded = x.clone()
    for row, n in enumerate(lengths):
        padded[n:, row] = torch.nan
    parameters = list(body.parameters())
    y, after = body(padded, state, lengths=lengths)
    found = torch.autograd.grad(y.square().sum(), parameters)
    total = 0
    for row, n in enumerate(lengths):
        alone, end = body(x[:n, row : row + 1], select_rows(state, torch.tensor([row])))
        assert_close(y[:n, row : row + 1], alone)
        assert not y[n:, row].any()
        for ours, theirs in zip(pytree.tree_leaves(after), pytree.tree_leaves(end), strict=True):
            assert_close(ours[:, row : row + 1], theirs)
        total = total + alone.square().sum()
    assert_close(found, torch.autograd.grad(total, parameters))


def assert_equals_from_the_start(body, slow, steps, batch):
    """Compare outputs and their gradients, and states if it returns them, with `slow(body, x)`.

    All parameters are drawn anew: a bias begins with 0 and a normalisation with 1 and 0, which would hide an error.
    """
    for parameter in body.parameters():
        nn.init.uniform_(parameter, -0.8, 0.8)
    x = torch.randn(steps, batch, body.input_size, requires_grad=True)
    (y, state), (expected, last) = body(x), slow(body, x)
    assert_close(y, expected)
    if last is not None:
        assert_close(state, last)
    tensors = [x, *body.parameters()]
    assert_close(gradients(y, *tensors), gradients(expected, *tensors))


def convolved(convolution, steps, dilation=1):
    """y_t = b + sum_j W_j x_{t - (k-1-j) d}, where the weights of an output channel have their learned length."""
    parameters = convolution.parametrizations.weight
    direction = parameters.original1
    weight = parameters.original0 * direction / direction.square().sum((0, 1), keepdim=True).sqrt()
    outputs = []
    for t in range(len(steps)):
        pre = convolution.bias
        for j in range(len(weight)):
            before = t - (len(weight) - 1 - j) * dilation
            if before >= 0:
                pre = pre + steps[before] @ weight[j]
        outputs.append(pre.expand(len(steps[0]), -1))
    return outputs


def affine(linear, x):
    """W x + b; None: x."""
    return x if linear is None else x @ linear.weight.t() + linear.bias


def normed(norm, x):
    """A layer normalisation."""
    return normalised(x, norm.eps) * norm.weight + norm.bias


def normalised(values, epsilon):
    """The channels with mean 0 and variance 1."""
    centred = values - values.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + epsilon).sqrt()


def normed_lstm(norm, gates, c, dropped=0.0):
    """The end of a step of an LSTM with layer normalisation: h and c from the four pre-activations."""
    i, g, f, o = (normalised(a, 1e-3) * gain + bias for a, gain, bias in zip(gates, norm.gain, norm.bias, strict=True))
    c = f.sigmoid() * c + i.sigmoid() * F.dropout(g.tanh(), dropped)
    return o.sigmoid() * (normalised(c, 1e-3) * norm.memory_gain + norm.memory_bias).tanh(), c
