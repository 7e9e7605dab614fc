"""Matrix products in single precision on a CPU, by the faster of torch's two libraries.

torch multiplies with MKL, which uses half the width of the vector units of AMD's processors with AVX-512. oneDNN, the
other library in torch's builds, uses all of it and is twice as fast there (`python benchmarks/products.py`). Elsewhere,
and for other dtypes and small products, this module is torch's own operations. The two libraries add in different
orders.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.core.precision import autocast_dtype

SMALL = 2**22  # multiplications; in smaller products the call of oneDNN takes longer than it saves
BLOCK = 2**19  # entries of a product that is written or added to a tensor: 2 MB of scratch, which stay in the cache


@cache
def prefers_onednn() -> bool:
    """Whether oneDNN is the faster library here: known from the processor, not timed, so that runs can be repeated."""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.backends.mkldnn.is_available()
    if not (wide and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


def is_watched() -> bool:
    """Whether a compiler, a tracer, `torch.func` or forward-mode differentiation must see ordinary operations."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.maybe_current_level() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def mm(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Return a b, (N, K) and (K, M), or write it to `out`; without gradients."""
    if not _fits(a, b):
        return torch.mm(a, b) if out is None else torch.mm(a, b, out=out)
    if out is None:
        return _onednn(a, b.t())
    for rows in _blocks(out):
        out[rows] = _onednn(a[rows], b.t())
    return out


def addmm_(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a b to `total`; without gradients."""
    if not _fits(a, b):
        total.addmm_(a, b)
        return
    for rows in _blocks(total):
        total[rows] += _onednn(a[rows], b.t())


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear`, with these products if it is a part of training."""
    x = input.reshape(-1, input.shape[-1])
    fast = x.requires_grad and torch.is_grad_enabled() and x.dtype == weight.dtype and _fits(x, weight.t())
    if not fast or is_watched() or autocast_dtype(x.device.type) is not None:
        return F.linear(input, weight, bias)
    y: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return y.view(*input.shape[:-1], -1)


class Linear(nn.Linear):
    """`nn.Linear` with these products, in training."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias) if self.training else super().forward(input)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return _onednn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        product = torch.mm if torch.is_grad_enabled() else mm  # of gradients that must be differentiable
        return product(grad, weight), product(grad.t(), x), grad.sum(0) if ctx.has_bias else None


def _fits(a: Tensor, b: Tensor) -> bool:
    """Whether oneDNN multiplies a (N, K) and b (K, M)."""
    single = a.dtype == torch.float32 and a.device.type == "cpu" and a.shape[0] * b.numel() >= SMALL
    return single and prefers_onednn()


def _blocks(out: Tensor) -> Iterator[slice]:
    size = max(1, BLOCK // out.shape[1])
    return (slice(start, start + size) for start in range(0, len(out), size))


def _onednn(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a b^T + bias, of a (N, K) and b (M, K) with any strides."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return product
