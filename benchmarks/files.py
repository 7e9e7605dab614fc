"""How far a reader must jump: the files of the package that a training call enters, and the switches between them.

python benchmarks/files.py           a net of 8 layers
python benchmarks/files.py full      a shape of `make bench`
"""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import trellisnet
from measure import training_step
from peers import SHAPES, Shape

SMALL = Shape("small", 20, 32, 8, 12, 2)
ROOT = trellisnet.__path__[0]


def count(shape: Shape) -> tuple[Counter[str], int]:
    """Calls into each file during a second training step, and how many of them come from another file."""
    step, entered, switches = training_step("store", shape), Counter[str](), 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal switches
        callee = frame.f_code.co_filename
        if event != "call" or not callee.startswith(ROOT):
            return
        entered[callee.removeprefix(ROOT)] += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(ROOT):
            caller = caller.f_back  # through torch, as a module's __call__
        switches += caller is not None and caller.f_code.co_filename != callee

    step()
    sys.setprofile(watch)
    try:
        step()
    finally:
        sys.setprofile(None)
    return entered, switches


def main() -> None:
    shape = SHAPES[sys.argv[1]] if sys.argv[1:] else SMALL
    entered, switches = count(shape)
    for name, calls in entered.most_common():
        print(f"{calls:6} {name}")
    print(f"{len(entered)} files, {switches} switches, {sum(entered.values())} calls")


if __name__ == "__main__":
    main()
