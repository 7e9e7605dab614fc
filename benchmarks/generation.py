"""Measure `generate` of transformers with the cache and without it; the two must write the same text.

python benchmarks/generation.py --num_layers 24 --hidden_size 400
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch
from jsonargparse import auto_cli

from trellisnet import TrellisLM


def measure(
    num_layers: int = 24,
    hidden_size: int = 400,
    vocab_size: int = 50,
    batch_size: int = 1,
    prompt: int = 64,
    new_tokens: int = 64,
    rounds: int = 3,
) -> dict[str, float]:
    """Processor seconds of greedy generation with and without the cache, the median of some rounds, and their ratio."""
    from trellisnet.integrations.transformers import TrellisNetForCausalLM  # noqa: PLC0415  # slow to import

    torch.manual_seed(0)
    lm = TrellisLM(vocab_size, hidden_size // 4, hidden_size, num_layers, weight_norm=True).eval()
    torch.nn.init.uniform_(lm.embedding.weight, -2, 2)
    model = TrellisNetForCausalLM.from_lm(lm)
    ids = torch.randint(vocab_size, (batch_size, prompt))
    options: dict[str, Any] = {"max_new_tokens": new_tokens, "do_sample": False}
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds):
        texts = []
        for use_cache, taken in seconds.items():
            start = time.process_time()
            texts.append(model.generate(ids, use_cache=use_cache, **options))
            taken.append(time.process_time() - start)
        if not torch.equal(*texts):
            raise RuntimeError("generation with the cache differs from generation without it")
    cached, uncached = median(seconds[True]), median(seconds[False])
    return {"cached": cached, "uncached": uncached, "ratio": uncached / cached}


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    result = auto_cli(measure)
    print(", ".join(f"{name} {value:.3g}" for name, value in result.items()))
