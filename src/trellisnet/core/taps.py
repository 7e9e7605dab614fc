"""What a layer reads: the taps of the level below, the memory, and the input.

`Taps` reads them as the paper does, each at one step. A net with attention has readers of its own (`attention.py`,
`bridge.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from trellisnet.core.call import Call, Injections, Inputs


class Taps:
    """The reader of a call. Shapes: n steps that a layer computes, B sequences, H hidden channels, G gates."""

    def __init__(self, call: Call, inputs: Inputs) -> None:
        self.call, self.inputs = call, inputs

    def hidden(self, i: int, level: Tensor) -> list[Tensor]:
        """What layer i reads through each tap, the oldest first: (n, B, H) of level i in storage order."""
        return [level[rows] for rows in self.call.plan.layers[i].taps]

    def memory(self, i: int, level: Tensor) -> Tensor:
        """The memory that the cells of layer i read: (n, B, H) of the memories of level i in storage order."""
        return level[self.call.plan.layers[i].memory]

    def injected(self) -> list[Tensor | None]:
        """What the input adds to each layer (n, B, G*H); layers of one dilation share the product."""
        injections = Injections(self.call)
        products = [gathered @ self.inputs.input_weight for gathered in injections.gather(self.inputs.x)]
        return [
            None if number is None else products[number][-layer.rows :]
            for number, layer in zip(injections.of_layer, self.call.plan.layers, strict=True)
        ]


Reader = Callable[[Call, Inputs], Taps]
