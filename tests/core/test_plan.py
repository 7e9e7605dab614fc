"""Which cells a plan computes, and the order of its rows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellisnet.core.plan import cone_plan, whole_plan


def rows_of(rows, count):
    return list(range(count))[rows] if isinstance(rows, slice) else rows.tolist()


def check(plan, kernel_size):
    for i, layer in enumerate(plan.layers):
        stored = [*plan.levels[i].context, *plan.levels[i].steps]
        steps = list(plan.levels[i + 1].steps)
        assert layer.rows == len(steps)
        assert len(set(stored)) == len(stored)
        assert all(step < 0 for step in plan.levels[i].context)
        assert all(step >= 0 for step in plan.levels[i].steps)
        assert stored[-len(steps) :] == steps  # the newest tap and the wanted steps are always the last rows
        for j, rows in enumerate(layer.taps):
            shift = (kernel_size - 1 - j) * layer.dilation
            assert [stored[row] for row in rows_of(rows, len(stored))] == [step - shift for step in steps]


@settings(max_examples=100)
@given(
    wanted=st.sets(st.integers(0, 20), min_size=1).map(sorted),
    dilations=st.lists(st.integers(1, 8), min_size=2, max_size=6),
    kernel_size=st.integers(2, 4),
)
def test_cone_reads_what_it_should_and_nothing_else(wanted, dilations, kernel_size):
    plan = cone_plan(tuple(wanted), dilations, kernel_size)
    check(plan, kernel_size)
    needed = set(wanted)
    for i, dilation in reversed(list(enumerate(dilations[:-1]))):
        assert set(plan.levels[i + 1].steps) == {step for step in needed if step >= 0}
        needed = {step - j * dilation for step in plan.levels[i + 1].steps for j in range(kernel_size)}
        assert {*plan.levels[i].context, *plan.levels[i].steps} == needed


def test_whole_plan_keeps_full_contexts():
    plan = whole_plan(5, (1, 3, 2), 3)
    check(plan, 3)
    assert [len(level.context) for level in plan.levels] == [2, 6, 4]
    assert plan.whole
    assert plan.cells == 10


def test_pixel_task_needs_a_tenth_of_the_products():
    dilations = (1, 1, *(2**i for i in range(1, 10)), 1)
    plan = cone_plan((783,), dilations, 2)
    # layer 0 has no products: there is nothing below it
    assert sum(layer.rows for layer in plan.layers[1:]) / (10 * 784) < 0.11
    assert all(isinstance(rows, slice) for layer in plan.layers[1:5] for rows in layer.taps)


def test_tail_of_a_deep_net_needs_a_quarter_less():
    plan = cone_plan(range(58, 110), (1,) * 59, 2)
    assert plan.cells / (58 * 110) == pytest.approx(0.73, abs=0.01)
    assert all(isinstance(rows, slice) for layer in plan.layers for rows in layer.taps)
