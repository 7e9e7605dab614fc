"""The cache of `generate`: one layer, which holds the state of the body."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from trellisnet.integrations.transformers.padding import Memory
from trellisnet.models.body import select_rows


class StateLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is not type-checked here
    """The state of all layers of a body, of a size that does not depend on the text's length."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: Memory | None = None
        self.length = 0  # columns read, with padding

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the first call of the model makes the state."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a StateCache holds the state of a body, not keys and values of attention")

    def store(self, memory: Memory, columns: int) -> None:
        """Replace the memory after a call that read n columns."""
        self.memory, self.length = memory, self.length + columns

    def get_seq_length(self) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        self.memory, self.length = None, 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the given rows of the batch, in that order."""
        self.memory = select_rows(self.memory, indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row of the batch n times."""
        if self.memory is not None:
            rows = torch.arange(self.memory.output.shape[1], device=self.memory.output.device)
            self.batch_select_indices(rows.repeat_interleave(repeats))


class StateCache(Cache):  # type: ignore[misc]
    """What a model has read: pass it as `past_key_values` to continue from there.

    `generate` makes its own. `copy.deepcopy` makes a second one, to continue a text twice.
    """

    def __init__(self) -> None:
        super().__init__(layers=[StateLayer()])

    @property
    def layer(self) -> StateLayer:
        """The only layer."""
        layer: StateLayer = self.layers[0]
        return layer
