"""The examples run as a user would run them."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_demo_trains_and_writes():
    options = ["--seconds", "4", "--width", "64", "--characters", "20"]
    run = [sys.executable, "-W", "error", str(ROOT / "examples" / "demo.py"), *options]
    output = subprocess.run(run, check=True, capture_output=True, text=True, timeout=120).stdout
    before, after = (float(bits) for bits in re.findall(r": ([\d.]+) bits per character", output))
    assert after < before - 0.3  # a busy machine takes few steps in four seconds
    assert "def read(self" in output
