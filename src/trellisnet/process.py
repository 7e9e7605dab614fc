"""Settings of a process that trains or predicts. Importing the package does not touch them."""

from __future__ import annotations

import ctypes
import sys

import torch

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # parameters of mallopt in <malloc.h>
NEVER = 2**31 - 1  # bytes: the largest threshold there is


def prepare_process() -> None:
    """Make numbers that are almost 0 equal to 0, and keep the memory that tensors free.

    Activations of deep nets underflow, and a CPU is slow with denormal numbers. A training step allocates the same
    tensors again and again: glibc returns the large ones to the system each time, which must clear their pages again.
    The process then stays as large as its largest step, or a little larger, because freed memory is in pieces. With
    another C library nothing is changed.
    """
    torch.set_flush_denormal(True)
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(MMAP_MAX, 0)
        libc.mallopt(TRIM_THRESHOLD, NEVER)
