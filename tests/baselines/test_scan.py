"""The scan against the recurrence, step by step."""

import pytest
import torch

from reference import assert_close, gradients
from trellisnet.baselines.scan import scan


def slow(keep, add, first=None):
    keep, states = keep.expand_as(add), []
    state = torch.zeros_like(add[0]) if first is None else first
    for t in range(len(add)):
        state = keep[t] * state + add[t]
        states.append(state)
    return torch.stack(states)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 3, 4), (5, 1, 2)])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("from_start", [False, True])
def test_states_and_gradients_are_those_of_the_recurrence(dtype, shape, constant, from_start):
    keep = torch.randn(shape[2:] if constant else shape, dtype=dtype, requires_grad=True)
    add = torch.randn(shape, dtype=dtype, requires_grad=True)
    first = None if from_start else torch.randn(shape[1:], dtype=dtype, requires_grad=True)
    inputs = [each for each in (keep, add, first) if each is not None]
    states, expected = scan(*inputs), slow(*inputs)
    assert_close(states, expected)
    real, expected = (torch.view_as_real(each) if dtype.is_complex else each for each in (states, expected))
    assert_close(gradients(real, *inputs), gradients(expected, *inputs))
