"""Fuzz the package: `python -m fuzz CALLS [SEED [LINES]]`, with `tests` on the path. Exits with 1 after a finding."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

from fuzz.runs import fuzz_calls, fuzz_lines


def main() -> int:
    calls = int(sys.argv[1]) if sys.argv[1:] else 10_000
    seed = int(sys.argv[2]) if sys.argv[2:] else 0
    lines = int(sys.argv[3]) if sys.argv[3:] else calls // 20
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process would ignore it
    found = False
    with tempfile.TemporaryDirectory() as folder:
        for name, run, count in (("calls", fuzz_calls, calls), ("command lines", fuzz_lines, lines)):
            started, used = time.monotonic(), time.process_time()
            report = run(count, seed, Path(folder))
            seconds = f"{time.monotonic() - started:.0f} s, {time.process_time() - used:.0f} s of the processor"
            print(f"{count} {name}, seed {seed}, {seconds}: {report}", flush=True)
            found = found or bool(report.findings)
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
