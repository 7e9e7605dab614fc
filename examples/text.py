"""Python's own library as a character corpus: real text on every machine, without a download."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch
from torch import Tensor

MODULES = Path(sysconfig.get_paths()["stdlib"])
HELD_OUT = 8  # every so many files are kept for evaluation
ALPHABET = [chr(code) for code in (10, *range(32, 127))]


def load_characters(limit: int = 2_000_000) -> tuple[Tensor, Tensor]:
    """Training and held-out text as character numbers; what is not ASCII becomes a space."""
    number = {character: i for i, character in enumerate(ALPHABET)}
    files = sorted(MODULES.glob("*.py"))
    parts: tuple[list[int], list[int]] = ([], [])
    for i, file in enumerate(files):
        text = file.read_text(encoding="utf-8", errors="replace")
        parts[i % HELD_OUT == 0].extend(number.get(character, number[" "]) for character in text)
    return torch.tensor(parts[0][:limit]), torch.tensor(parts[1][: limit // 20])


def as_columns(characters: Tensor, batch: int) -> Tensor:
    """Cut a text into `batch` long columns: (T, B). Every column is read from top to bottom with its state."""
    steps = len(characters) // batch
    return characters[: steps * batch].view(batch, steps).t().contiguous()
