"""What every fuzz shares: values that are right or wrong for a kind of argument, and the verdict about a call."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import random
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

SECONDS = 60  # of one call; a call that takes longer hangs
PATIENCE = 10  # as many times longer on a machine that gives this process less than half of a core
HUGE = 10**40

WRONG: dict[str, list[Any]] = {
    "size": [0, -1, -(2**40), True, False, 1.5, 2.0, math.nan, math.inf, "3", "", b"3", [], {}, HUGE, object()],
    "body": ["lstm", {}, {"hidden_size": 2}, {"name": "nonsense"}, {"name": "lstm", "x": 1}, [], 1, True, math.nan],
    "count": [-1, -(2**40), True, False, 1.5, math.nan, "3", [], {}, HUGE],
    "probability": [-0.1, 1, 1.0, 1.5, math.nan, math.inf, -math.inf, "0.1", True, False, None, [], HUGE, 1j],
    "weight": [-1, -0.5, math.nan, math.inf, "1", True, [], {}, 1j],
    "positive": [0, 0.0, -1, math.nan, math.inf, "1", True, False, [], 1j],
    "flag": [0, 1, "true", "false", "", None, 2.0, [], math.nan],
    "text": ["", "nonsense", 0, True, None, [], math.nan, 1.5, {}, ["lstm"]],
    "sizes": [0, -1, True, 1.5, "12", [], [0], [1, -1], [1.5], ["1"], [True], {}, math.nan, [[1]], [None]],
    "levels": [0.5, "0.5", [], [0], [1.0], [0.9, 0.1], [0.5, 0.5], [math.nan], ["0.5"], [True], [None], {}],
}


class Draw(random.Random):
    """Random choices of a fuzz."""

    def chance(self, share: float) -> bool:
        return self.random() < share

    def size(self, largest: int = 5) -> Any:
        """A number from 1, now and then of NumPy or torch."""
        number = self.randint(1, largest)
        return self.choice([np.int64, torch.tensor])(number) if self.chance(0.05) else number

    def wrong(self, kind: str) -> Any:
        """A value that no argument of that kind may have."""
        return self.choice(WRONG[kind])

    def anything(self) -> Any:
        """Any value at all, right or wrong."""
        return self.choice(WRONG[self.choice(list(WRONG))] + [None, 1, 2, 0.5, "lstm", [1, 2], (2,)])


@dataclass
class Report:
    """How the calls ended, and what must not have happened."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, problem: str, details: str = "") -> None:
        """Keep the first finding of each kind."""
        self.counts["finding"] += 1
        if problem not in self.findings:
            self.findings[problem] = f"{what}\n{details}"
            print(f"--- {problem}\n{self.findings[problem]}", file=sys.stderr, flush=True)

    def __str__(self) -> str:
        lines = [f"{sum(self.counts.values())} calls: {dict(self.counts)}"]
        lines += [f"--- {problem}\n{text}" for problem, text in self.findings.items()]
        return "\n".join(lines)


class Hang(BaseException):
    """A call took longer than `SECONDS`."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Turn a hang into an exception, and warnings into errors."""

    started, rings = time.process_time(), itertools.count(1)

    def ring(number: int, frame: object) -> None:
        if time.process_time() - started > SECONDS / 2 or next(rings) == PATIENCE:
            raise Hang
        signal.alarm(SECONDS)

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def judge(
    report: Report,
    what: str,
    call: Callable[[], Any],
    *,
    wrong: str | None = None,
    names: Iterable[str] = (),
    allowed: tuple[type[Exception], ...] = (ValueError, TypeError),
) -> Any:
    """Make a call; return its result, or None after a refusal.

    Args:
        report: where the verdict goes.
        what: the call in words.
        call: what to do. An AssertionError of it is a finding: the result was not right.
        wrong: the argument that is surely wrong: the call must be refused with a message that names it,
        names: or that names another argument, if several do not fit together.
        allowed: the exceptions that are refusals.
    """
    try:
        with limited():
            result = call()
    except allowed as error:
        kind, text = type(error).__name__, str(error)
        place = traceback.extract_tb(error.__traceback__)[-1]
        if "trellisnet" not in place.filename:
            report.add(what, f"{kind} of {place.filename.split('/')[-1]}, not of ours: {text[:80]}", trace(error))
        elif wrong is not None and not any(name in text for name in (wrong, *names)):
            report.add(what, f"{wrong} is wrong, but the message does not name it: {text[:150]}")
        elif not text.strip():
            report.add(what, f"a {kind} without a message", trace(error))
        else:
            report.counts["refused"] += 1
        return None
    except (Exception, Hang) as error:
        report.add(what, f"{type(error).__name__}: {str(error)[:150]}", trace(error))
        return None
    if wrong is not None:
        report.add(what, f"{wrong} is wrong, and was accepted")
        return None
    report.counts["works"] += 1
    return result


def trace(error: BaseException) -> str:
    """The last frames of an error."""
    return "".join(traceback.format_exception(error)[-5:])


@contextlib.contextmanager
def captured() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """What a program prints, to stdout and to stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield out, err


def finite(tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Assert the shape of a result, and that it has numbers only."""
    assert tuple(tensor.shape) == shape, f"shape {tuple(tensor.shape)}, expected {shape}"
    assert bool(torch.isfinite(tensor).all()), "not finite"
