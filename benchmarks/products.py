"""Matrix products in single precision by MKL and by oneDNN: `python benchmarks/products.py`.

Prints billions of multiplications and additions per second of one core, for the products of a translator's step.
"""

from __future__ import annotations

import time

import torch

from measure import interleaved
from trellisnet.core.matmul import _onednn, prefers_onednn

SHAPES = [(64, 256, 1024), (1024, 512, 1024), (1024, 256, 6000)]  # rows, inner size, columns


def main() -> None:
    torch.set_num_threads(1)
    print(f"oneDNN is preferred here: {prefers_onednn()}")
    for n, k, m in SHAPES:
        x, weight, grad = torch.randn(n, k), torch.randn(k, m), torch.randn(n, m)
        for what, a, b in (("x W", x, weight), ("g W'", grad, weight.t()), ("x' g", x.t(), grad)):
            steps = {"MKL": lambda a=a, b=b: a @ b, "oneDNN": lambda a=a, b=b: _onednn(a, b.t())}
            found = interleaved(steps, rounds=1, clock=time.process_time)
            rates = ", ".join(f"{name} {2e-9 * n * k * m / seconds:.0f}" for name, seconds in found.items())
            print(f"({n}, {k}) x ({k}, {m}), {what}: {rates}")


if __name__ == "__main__":
    main()
