"""Several processes that work on one study."""

from __future__ import annotations

import os
import subprocess
import sys


def share(workers: int) -> None:
    """Run this command in several processes, one worker each, until all have ended."""
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // workers))}
    command = [sys.executable, "-m", "trellisnet", *sys.argv[1:], "--workers", "1"]  # what comes last counts
    started = [subprocess.Popen(command, env={**os.environ, **threads}) for _ in range(workers)]
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
