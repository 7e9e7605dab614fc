"""The extended LSTM with matrix memories (Beck et al., 2024, 2025), through the package `xlstm`.

Block  y = x + mLSTM(norm(x))      z = y + W_d (silu(W_g norm(y)) W_u norm(y))
mLSTM  C_t = f_t C_{t-1} + i_t v_t k_t'      n_t = f_t n_{t-1} + i_t k_t      i_t = exp(..), f_t = sigmoid(..)
       h_t = C_t' q_t / max(|n_t' q_t|, 1)   out = W_o (sigmoid(o_t) norm(h_t))      per head, scaled by exp(m_t)

The blocks are those of the package's 7B model, and the recurrence is its kernel of ordinary torch operations, which
runs on every device. Where widths differ, the first block reads a linear map of the input. A last normalisation follows
the last block. Forget gates start with biases from 3 to 6, so that the heads remember for different times.

M. Beck, K. Poeppel, M. Spanring, A. Auer, O. Prudnikova, M. Kopp, G. Klambauer, J. Brandstetter, S. Hochreiter: xLSTM:
Extended Long Short-Term Memory. NeurIPS 2024, arXiv:2405.04517. M. Beck et al.: xLSTM 7B. 2025, arXiv:2503.13427.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from trellisnet.baselines.base import Baseline, BaselineOptions, beyond, without_padding
from trellisnet.core.checks import positive_int
from trellisnet.extras import require

CHUNK = 64  # steps that are computed in parallel; the chunks follow each other
Memory = tuple[Tensor, Tensor, Tensor]  # of a block: C (B, heads, K, V), n (B, heads, K), m (B, heads, 1)


@dataclass(eq=False, repr=False)
class XlstmOptions(BaselineOptions):
    """The options of a stack of xLSTM blocks.

    Args:
        hidden_size: channels of every block; a multiple of twice the number of heads.
        num_layers: number of blocks.
        heads: number of matrix memories per block.
        feed_forward: width of the inner layer of a block; default 8/3 of hidden_size, as in the 7B model.
    """

    num_layers: int = 2
    heads: int = 2
    feed_forward: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.heads = positive_int("heads", self.heads)
        if self.hidden_size % (2 * self.heads):
            multiple = f"a multiple of twice the {self.heads} heads"
            raise ValueError(f"hidden_size must be {multiple}, got {self.hidden_size}")
        inner = round(8 * self.hidden_size / 3) if self.feed_forward is None else self.feed_forward
        self.feed_forward = positive_int("feed_forward", inner)


class _Recurrence(nn.Module):
    """The recurrence of a block for any number of steps; the package's own wants a multiple of its chunks."""

    def forward(  # the names of the package
        self, q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor, c_initial: Any, n_initial: Any, m_initial: Any
    ) -> tuple[Tensor, Memory]:
        """Return the outputs (B, heads, T, V) and the memory after them.

        The package hands the three entries of a block's state on: here the memory, the padding (B, 1, T), and None.
        """
        from mlstm_kernels.torch.chunkwise.native import mlstm_chunkwise__native_autograd as chunkwise  # noqa: PLC0415

        memory, padding = c_initial, n_initial
        if padding is not None:
            largest = torch.finfo(i.dtype).max  # the input gate is exactly 0, the forget gate 1: the memory stays
            i, f = i.masked_fill(padding, -largest), f.masked_fill(padding, largest)
        outputs = []
        for start in range(0, q.shape[2], CHUNK):
            part = [tensor[:, :, start : start + CHUNK] for tensor in (q, k, v, i, f)]
            out, memory = chunkwise(
                *part, *(memory or (None,) * 3), return_last_states=True, chunk_size=part[0].shape[2]
            )
            outputs.append(out)
        return torch.cat(outputs, dim=2), memory


class XlstmBody(Baseline, XlstmOptions):
    """A stack of xLSTM blocks as a body. Its state is (C, n, m), each (layers, B, heads, ...)."""

    input_scale = 6.0  # as for a trellis
    feed_forward: int
    output_size: int

    def build(self, where: dict[str, Any]) -> None:
        model = require("xlstm.xlstm_large.model", "xlstm", "the body 'xlstm'")
        same = self.input_size == self.hidden_size
        self.up = None if same else nn.Linear(self.input_size, self.hidden_size, **where)
        config = model.xLSTMLargeConfig(
            embedding_dim=self.hidden_size,
            num_heads=self.heads,
            num_blocks=self.num_layers,
            vocab_size=1,  # of the package's language model, which is not used
            norm_reduction_force_float32=False,  # double precision stays double
            chunkwise_kernel="chunkwise--native_autograd",  # replaced below; the default needs triton
            sequence_kernel="native_sequence__native",
            step_kernel="native",
            ffn_proj_factor=self.feed_forward / self.hidden_size,
            ffn_round_up_to_multiple_of=1,
        )
        with torch.device(where["device"] or torch.get_default_device()):
            self.blocks = nn.ModuleList(model.mLSTMBlock(config) for _ in range(self.num_layers))
            self.norm = model.RMSNorm(self.hidden_size, force_float32_reductions=False)
        for block in self.blocks:
            layer: Any = block.mlstm_layer
            layer.mlstm_backend = _Recurrence()
            nn.init.zeros_(layer.igate_preact.weight)
            nn.init.zeros_(layer.igate_preact.bias)
            nn.init.zeros_(layer.fgate_preact.weight)
            with torch.no_grad():
                layer.fgate_preact.bias.copy_(torch.linspace(3, 6, self.heads))
        self.to(where["dtype"] or torch.get_default_dtype())

    def forward(
        self, x: Tensor, state: Memory | None = None, *, lengths: Sequence[int] | Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        """Run x (T, B, C) from a state; return outputs (T, B, O) and the new state.

        With `lengths`, the state is the one at each sequence's own end, and outputs beyond it are zero.
        """
        x = without_padding(x, lengths)
        y = (x if self.up is None else self.up(x)).transpose(0, 1)  # (B, T, H)
        padding = None if lengths is None else beyond(lengths, x).permute(1, 2, 0)  # (B, 1, T)
        memories = []
        for number, block in enumerate(self.blocks):
            first = None if state is None else tuple(part[number] for part in state)
            y, memory = block(y, (first, padding, None))  # handed on to the recurrence as they are
            memories.append(memory)
        c, n, m = (torch.stack(parts) for parts in zip(*memories, strict=True))
        return self.project(self.norm(y).transpose(0, 1), lengths), (c, n, m)
