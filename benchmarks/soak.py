"""A long stream, step by step: does the state drift from a re-run, and does memory grow?

python benchmarks/soak.py                    1,000,000 steps by layers, then 1,000,000 by sweeps
python benchmarks/soak.py 10000 sweeps       fewer steps, one path

At ten points the state is compared with one that never went through the stream. By layers, an output depends on
`receptive_field` steps only, so the net reads just these anew. Sweeps see the whole past, so a second state reads the
same inputs in chunks of 1,000 steps, which take other ways through the engine.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from trellisnet import TrellisNet

STEPS, BATCH, POINTS, CHUNK, CHANNELS = 1_000_000, 4, 10, 1_000, 3


@dataclass(frozen=True)
class Soak:
    """What a stream showed: the largest difference at each point, and megabytes in use there."""

    differences: list[float]
    memory: list[float]
    seconds: float


def make_net(path: str) -> TrellisNet:
    torch.manual_seed(0)
    layers = {"layers": 6, "sweeps": 2}[path]
    dilation = (1, 2, 4) if path == "layers" else 1
    return TrellisNet(CHANNELS, 16, layers, path=path, dilation=dilation, dtype=torch.float64).eval()


def chunk_of(number: int, steps: int) -> Tensor:
    """The inputs of a chunk (steps, B, C), the same whenever they are asked for."""
    generator = torch.Generator().manual_seed(number)
    return torch.randn(steps, BATCH, CHANNELS, generator=generator, dtype=torch.float64)


def in_use() -> float:
    """Megabytes of memory of this process now; where the system does not tell, the most so far."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


@torch.no_grad()
def soak(path: str, steps: int = STEPS, chunk: int = CHUNK) -> Soak:
    """Stream `steps` steps, in a multiple of ten chunks."""
    net, chunks = make_net(path), steps // chunk
    if chunks % POINTS or steps % chunk:
        raise ValueError(f"steps must be a multiple of {POINTS * chunk}, got {steps}")
    state = reread = None
    before = torch.empty(0, BATCH, CHANNELS, dtype=torch.float64)
    differences, memory, started = [], [], time.monotonic()
    for number in range(chunks):
        x = chunk_of(number, chunk)
        for step in x.split(1):
            y, state = net(step, state)
        if net.receptive_field is None:
            expected, reread = net(x, reread)
        if (number + 1) % (chunks // POINTS) == 0:
            if net.receptive_field is not None:
                expected, _ = net(torch.cat([before, x])[-net.receptive_field :])
            differences.append((y[-1] - expected[-1]).abs().max().item())
            memory.append(in_use())
        before = x
    return Soak(differences, memory, time.monotonic() - started)


def main() -> None:
    torch.set_flush_denormal(True)
    steps = int(sys.argv[1]) if sys.argv[1:] else STEPS
    for path in sys.argv[2:] or ["layers", "sweeps"]:
        found = soak(path, steps)
        print(f"{path}: {steps:,} steps, B {BATCH}, float64, {found.seconds:.0f} s")
        print("  largest difference at each point:", " ".join(f"{each:.1e}" for each in found.differences))
        print("  megabytes at each point:         ", " ".join(f"{each:.1f}" for each in found.memory), flush=True)


if __name__ == "__main__":
    main()
