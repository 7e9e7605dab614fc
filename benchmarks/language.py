"""Language models: words a second of a stream, and the memory of a large vocabulary."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from measure import Step, in_own_process, interleaved, own_peak
from trellisnet import TrellisLM
from trellisnet.models.heads import make_head

WORDS, TOKENS, CHANNELS = 267_735, 2_560, 512  # WikiText-103: vocabulary, 40 windows of 64, embedding


def generation() -> list[dict[str, Any]]:
    """A word of a stream, against reading the last 64 words again with the same model (B 1)."""
    lm = TrellisLM(10_000, embedding_size=400, hidden_size=400, num_layers=24).eval()
    text = torch.randint(10_000, (1, 64))
    new = 50

    @torch.no_grad()
    def read_again() -> None:
        int(lm.log_prob(text)[0, -1].argmax())

    @torch.no_grad()
    def read_again_sparingly() -> None:
        features = lm.features(text, tail=1)
        int(lm.head.log_prob(features.output[0]).argmax())

    seconds = interleaved(
        {
            "stream": lambda: lm.generate(text, max_new_tokens=new),
            "read the prompt": lambda: lm.generate(text, max_new_tokens=1),
            "64 words again": read_again,
            "64 words again, tail=1": read_again_sparingly,
        },
        rounds=5,
    )
    seconds["stream"] = (seconds["stream"] - seconds.pop("read the prompt")) / (new - 1)
    return [
        {
            "contestant": name,
            "words/s": round(1 / each, 1),
            "of the stream's time": round(each / seconds["stream"], 1),
        }
        for name, each in seconds.items()
    ]


def vocabulary() -> list[dict[str, Any]]:
    """Peak memory of a training step on 267,735 words: embedding and head, each head in a process of its own."""
    peaks = {name: in_own_process(__file__, name) for name in ("softmax", "cluster", "adaptive")}
    return [
        {"head": name, "MB": round(peak / 2**20), "of softmax": round(peak / peaks["softmax"], 3)}
        for name, peak in peaks.items()
    ]


def head_step(name: str, words: int, tokens: int) -> Step:
    """Forward and backward of an embedding and a head; words are as frequent as Zipf's law says."""
    torch.manual_seed(0)
    embedding = nn.Parameter(torch.randn(words, CHANNELS))
    head = make_head(name, CHANNELS, embedding)
    targets = torch.multinomial(1 / torch.arange(1.0, words + 1), tokens, replacement=True)

    def step() -> None:
        embedding.grad = None
        head.zero_grad()
        head.loss(nn.functional.embedding(targets, embedding).tanh(), targets.roll(-1)).backward()

    return step


if __name__ == "__main__":
    print(own_peak(lambda small: head_step(sys.argv[1], 100 if small else WORDS, 10 if small else TOKENS)))
