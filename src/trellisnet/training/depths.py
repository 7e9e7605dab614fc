"""The depths of `training.depths`: one depth for some epochs, or a range from which every step draws its own.

Does not import torch, so that `--help` is fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

Depth = int | tuple[int, int]  # a depth, or the lowest and the highest of a range

MOST_SHOWN = 8  # depths of a range at which the best model is evaluated


def draw(depth: Depth | None, seed: int, step: int) -> int | None:
    """The depth of a training step: uniform in a range, otherwise the given one; None is the model's own.

    It is a function of the seed and the step, so all processes draw the same, and so does a resumed run.

    >>> [draw((1, 4), seed=0, step=step) for step in range(8)]
    [3, 3, 4, 1, 2, 1, 4, 1]
    >>> draw(3, seed=0, step=0)
    3
    """
    if not isinstance(depth, tuple):
        return depth
    lowest, highest = depth
    # of Python's generators, only `random` promises the same numbers in every version
    return lowest + int(Random(f"depth {seed} {step}").random() * (highest - lowest + 1))


def validated(depth: Depth | None) -> int | None:
    """The depth of validation in an epoch of this depth; of a range, None: the model's own."""
    return None if isinstance(depth, tuple) else depth


def shown_depths(depths: Iterable[Depth]) -> list[int]:
    """The depths at which a model trained in ranges is evaluated: those of each range, and twice the highest.

    Of a long range, a few evenly spaced ones. Without a range: none.

    >>> shown_depths([2, (1, 4)]), shown_depths([(2, 58)]), shown_depths([3])
    ([1, 2, 3, 4, 8], [2, 10, 18, 26, 34, 42, 50, 58, 116], [])
    """
    shown: set[int] = set()
    for depth in depths:
        if isinstance(depth, tuple):
            lowest, highest = depth
            gaps = min(highest - lowest, MOST_SHOWN - 1)
            shown |= {lowest + i * (highest - lowest) // max(gaps, 1) for i in range(gaps + 1)} | {2 * highest}
    return sorted(shown)


def described(depth: Depth | None) -> str:
    """A depth for messages.

    >>> described((1, 4)), described(3), described(None)
    ('1 to 4 at random', '3', 'of the model')
    """
    if isinstance(depth, tuple):
        return f"{depth[0]} to {depth[1]} at random"
    return "of the model" if depth is None else str(depth)
