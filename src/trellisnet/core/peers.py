"""An LSTM and a TCN with as many parameters as a trellis, as numbers only: what they would cost for the same question.

They are the bodies `lstm` with one layer and `tcn` with three taps, without the linear map after them. The tests
compare these numbers with the real bodies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from typing_extensions import Self

GATES = 4
TAPS = 3  # of a convolution of the TCN


@dataclass(frozen=True)
class Peer(ABC):
    """A net of a width; its work is counted in cells: a step of a layer, in a TCN of a convolution."""

    input_size: int
    width: int
    layers: int = 1

    def of_size(self, parameters: int) -> Self:
        """The net of this kind whose number of parameters is nearest to the given one."""
        return type(self)(self.input_size, nearest_width(self._parameters_of, parameters), self.layers)

    def _parameters_of(self, width: int) -> int:
        return type(self)(self.input_size, width, self.layers).parameters

    @property
    @abstractmethod
    def parameters(self) -> int:
        """The number of parameters."""

    @property
    @abstractmethod
    def receptive_field(self) -> int | None:
        """The number of steps that an output depends on; None: all before it."""

    @abstractmethod
    def cells_for(self, steps: int, tail: int | None) -> list[int]:
        """Per layer, the number of cells for the last n = `tail` outputs; None: all outputs."""

    @abstractmethod
    def multiply_adds(self, cells: list[int]) -> int:
        """The multiply-adds of a forward pass on one sequence."""

    @abstractmethod
    def kept(self, cells: list[int]) -> int:
        """The least numbers that a backward pass needs of the forward pass on one sequence."""


class LstmPeer(Peer):
    """An LSTM of one layer, with the two biases of `nn.LSTM`."""

    @property
    def parameters(self) -> int:
        return self._weights + 2 * GATES * self.width

    @property
    def receptive_field(self) -> None:
        return None

    def cells_for(self, steps: int, tail: int | None) -> list[int]:
        return [steps]

    def multiply_adds(self, cells: list[int]) -> int:
        return sum(cells) * self._weights

    def kept(self, cells: list[int]) -> int:
        return sum(cells) * (GATES + 2) * self.width  # the gates, h and c

    @property
    def _weights(self) -> int:
        return GATES * self.width * (self.input_size + self.width)


class TcnPeer(Peer):
    """A TCN: blocks of two convolutions with weight norm, of which each looks twice as far back as the one before."""

    @staticmethod
    def blocks_for(steps: int) -> int:
        """The least number of blocks that see n steps.

        >>> TcnPeer.blocks_for(61), TcnPeer.blocks_for(62)
        (4, 5)
        """
        return next(n for n in range(1, steps + 1) if TcnPeer(1, 1, n).receptive_field >= steps)

    @property
    def parameters(self) -> int:
        biases_and_lengths = 2 * 2 * self.layers * self.width
        skip = (self.input_size + 1) * self.width if self.input_size != self.width else 0
        return sum(self._weights) + biases_and_lengths + skip

    @property
    def receptive_field(self) -> int:
        return int(1 + 2 * (TAPS - 1) * (2**self.layers - 1))

    def cells_for(self, steps: int, tail: int | None) -> list[int]:
        count = steps if tail is None else min(steps, self.receptive_field + tail - 1)
        # the last step alone needs every second step of a block from the block below
        return [2 * (-(-count // 2**i) if tail == 1 else count) for i in range(self.layers)]

    def multiply_adds(self, cells: list[int]) -> int:
        skip = self.input_size * self.width if self.input_size != self.width else 0
        products = sum(count // 2 * weights for count, weights in zip(cells, self._weights, strict=True))
        return products + cells[0] // 2 * skip

    def kept(self, cells: list[int]) -> int:
        # the input; per block and step the results of both convolutions and of the block
        return cells[0] // 2 * self.input_size + sum(cells) // 2 * 3 * self.width

    @property
    def _weights(self) -> list[int]:
        """The weights of the convolutions of each block."""
        return [TAPS * self.width * ((self.width if i else self.input_size) + self.width) for i in range(self.layers)]


def nearest_width(parameters: Callable[[int], int], wanted: int) -> int:
    """The width whose number of parameters is nearest to the wanted one; of several the smallest.

    All widths are tried: a TCN as wide as its input has a map less than a narrower one.
    """
    bound = 1
    while parameters(bound) < wanted:
        bound *= 2
    return min(range(1, bound + 1), key=lambda width: abs(parameters(width) - wanted))
