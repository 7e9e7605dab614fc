"""Several processes that work on one study."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any


def share(workers: int) -> None:
    """Run this command in several processes, one worker each, until all have ended."""
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // workers))}
    command = [sys.executable, "-m", "trellisnet", *sys.argv[1:], "--workers", "1"]  # what comes last counts
    # what they print at the end would be there once per worker; their progress is on standard error
    options: dict[str, Any] = {"env": {**os.environ, **threads}, "stdout": subprocess.DEVNULL}
    started = [subprocess.Popen(command, **options) for _ in range(workers)]
    try:
        codes = [process.wait() for process in started]
    except BaseException:
        for process in started:
            process.terminate()  # they save their trials
        for process in started:
            process.wait()
        raise
    if any(codes):
        raise RuntimeError(f"{sum(map(bool, codes))} of {workers} workers ended with an error")
