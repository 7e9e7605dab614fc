"""A trellis network is a network of attention layers whose attention is fixed by position. See docs/attention.md.

Tokens u_s = [z_s, x_s] of level i. Head j of a layer looks at the step that tap j reads, with weight one; its value
map is that tap's kernel. The sum of the heads is the pre-activation. One more head, at lag d with identity values,
reads the memory. Before the start of a sequence there are null tokens, which are zero. The cell stands in the place of
the feed-forward part. Attention is linear in its values, so that a head may average tokens first and map them then.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from trellisnet.core.attention import AttentionTrellis, window_attention
from trellisnet.core.call import Call, Inputs
from trellisnet.core.checks import positive
from trellisnet.core.taps import Taps
from trellisnet.core.trellis import TrellisNet


def as_attention(trellis: TrellisNet, beta: float | None = None) -> AttentionNet:
    """The equal network of attention layers. It has the trellis's own weights: they are shared, not copied.

    Args:
        trellis: a net with the path "layers".
        beta: None: attention of weight one at the steps of the taps. A number: the softmax of scores that are beta at
            these steps and 0 at the others of the window; the error falls as e^-beta.

    Raises:
        TypeError: `trellis` is not a `TrellisNet`.
        ValueError: its path is not "layers", it has learned attention, or beta is not above 0.

    >>> net = TrellisNet(3, 8, num_layers=4, kernel_size=3, dilation=[1, 2])
    >>> x = torch.randn(20, 2, 3)
    >>> torch.allclose(as_attention(net)(x)[0], net(x)[0], atol=1e-6)
    True
    """
    if not isinstance(trellis, TrellisNet):
        raise TypeError(f"trellis must be a TrellisNet, got {type(trellis).__name__}")
    if isinstance(trellis, (AttentionNet, AttentionTrellis)):
        raise ValueError(f"trellis must not have attention already, got {type(trellis).__name__}")
    if trellis.path != "layers":
        raise ValueError(
            f"trellis must have path='layers', because attention reads the layer below and the path "
            f"{trellis.path!r} carries states along time within a layer"
        )
    return AttentionNet(trellis, None if beta is None else positive("beta", beta))


def lag_scores(lags: list[int], window: int, beta: float | None, like: Tensor) -> Tensor:
    """The scores (heads, window) of heads that look at one lag each.

    >>> lag_scores([1, 0], 3, 5.0, torch.zeros(1)).tolist()
    [[0.0, 5.0, 0.0], [5.0, 0.0, 0.0]]
    """
    chosen = torch.tensor(lags, device=like.device)[:, None] == torch.arange(window, device=like.device)
    beside = -math.inf if beta is None else 0.0
    peak = 0.0 if beta is None else min(beta, torch.finfo(like.dtype).max)
    return torch.where(chosen, peak, beside).to(like.dtype)


class Heads(Taps):
    """Reads through attention heads, one per tap and one for the memory, whose scores depend on the lag only."""

    def __init__(self, call: Call, inputs: Inputs, beta: float | None) -> None:
        super().__init__(call, inputs)
        self.beta = beta

    def hidden(self, i: int, level: Tensor) -> list[Tensor]:
        dilation, span = self.call.plan.layers[i].dilation, self.call.plan.spans[i]
        return self._look([lag * dilation for lag in self._lags()], span, level)

    def memory(self, i: int, level: Tensor) -> Tensor:
        dilation, span = self.call.plan.layers[i].dilation, self.call.plan.spans[i]
        return self._look([dilation], span, level)[0]

    def injected(self) -> list[Tensor | None]:
        call, products = self.call, dict[int, Tensor]()
        rows = call.plan.wanted + max(call.plan.spans)
        x = torch.cat([self.inputs.x.new_zeros(rows - len(self.inputs.x), *self.inputs.x.shape[1:]), self.inputs.x])
        for i, layer in enumerate(call.plan.layers):
            if i % call.inject_every == 0 and layer.dilation not in products:
                lags = [lag * layer.dilation for lag in self._lags()[-call.input_taps :]]
                read = self._look(lags, call.plan.spans[i], x[rows - call.plan.wanted - call.plan.spans[i] :])
                products[layer.dilation] = torch.cat(read, -1) @ self.inputs.input_weight
        return [None if i % call.inject_every else products[layer.dilation] for i, layer in enumerate(call.plan.layers)]

    def _lags(self) -> list[int]:
        """The lags of the taps, the oldest first, in dilations."""
        return list(reversed(range(len(self.call.plan.layers[0].taps))))

    def _look(self, lags: list[int], span: int, tokens: Tensor) -> list[Tensor]:
        """What a head for each lag sees of tokens (span + n, B, C): (n, B, C) per head."""
        scores = lag_scores(lags, span + 1, self.beta, tokens)
        values = tokens.unsqueeze(2).expand(-1, -1, len(lags), -1)
        keys = tokens.new_zeros(1).expand(*values.shape[:3], 1)  # queries and keys are zero: only the position counts
        return list(window_attention(keys[span:], keys, values, scores).unbind(2))


class AttentionNet(TrellisNet):
    """A network of attention layers that is equal to a trellis network; made by `as_attention`.

    Calls, states and parameters are those of the trellis.
    """

    paths = ("layers",)
    cones = False

    def __init__(self, trellis: TrellisNet, beta: float | None = None) -> None:
        options: dict[str, Any] = vars(trellis.options)
        super().__init__(trellis.input_size, **options, batch_first=trellis.batch_first, device="meta")
        self.kernel, self.beta = trellis.kernel, beta
        self.train(trellis.training)

    def densify(self) -> AttentionNet:
        """An equal net with a dense kernel, whose weights are copies."""
        return AttentionNet(self._densify(TrellisNet), self.beta)

    def as_trellis(self) -> TrellisNet:
        """The converse: attention that depends on the lag only, with a window of n steps, is a trellis of n taps.

        The kernel of the tap at lag l is the sum of the heads' value maps, each times the weight of lag l in its head.
        The result has copies of the weights.

        Raises:
            ValueError: the layers have different dilations; or the cell has a memory, and its head is not one-hot at
                lag 1, where a trellis of n taps and dilation 1 reads the memory.
        """
        if len(set(self.dilation)) > 1:
            raise ValueError(f"as_trellis needs one dilation for all layers, got dilation={self.dilation}")
        dilation = self.dilation[0]
        if self.cell.has_memory and (dilation > 1 or self.beta is not None):
            head = f"dilation={dilation} and beta={self.beta}"
            raise ValueError(f"as_trellis needs a cell without memory, or a memory read at lag 1 alone, got {head}")
        inputs, hidden, bias = self.kernel.dense(self.kernel.materialise(self.kernel.dtype))
        lags = [(self.kernel_size - 1 - j) * dilation for j in range(self.kernel_size)]
        window = lags[0] + 1
        weights = lag_scores(lags, window, self.beta, hidden).softmax(-1).flip(-1)  # (heads, taps): the oldest first
        options: dict[str, Any] = {**vars(self.options), "kernel_size": window, "dilation": 1, "hidden_taps": None}
        options |= {"groups": None, "weight_norm": False, "batch_first": self.batch_first}
        net = TrellisNet(self.input_size, **options, device=hidden.device, dtype=hidden.dtype)
        for name, value in (("weight_input", inputs), ("weight_hidden", hidden)):
            net.kernel.set_weight(name, torch.einsum("jl,jcg->lcg", weights, value))
        if bias is not None:
            net.kernel.set_weight("bias", bias)
        return net.train(self.training)

    def _reader(self, call: Call, inputs: Inputs) -> Taps:
        return Heads(call, inputs, self.beta)
