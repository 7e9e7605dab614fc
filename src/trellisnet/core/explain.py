"""What a call of a net costs, before it is run: from its plan, beside an LSTM and a TCN with as many parameters.

Multiply-adds are those of the matrix products, without a saving where they are computed in pairs of steps. The backward
pass of a product has two products of its size, so a training step counts three times the forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from trellisnet.core.batch import Sequences
from trellisnet.core.call import Call, Injections
from trellisnet.core.cells import InPlaceCell
from trellisnet.core.checks import layer_count, positive_int
from trellisnet.core.engine.storage import Layout
from trellisnet.core.forms import read_form
from trellisnet.core.peers import LstmPeer, Peer, TcnPeer
from trellisnet.core.plan import whole_plan

if TYPE_CHECKING:
    from trellisnet.core.trellis import TrellisNet

TRAINING = 3  # products of a training step per product of a forward pass


@dataclass(frozen=True)
class Figures:
    """What one net costs.

    Attributes:
        name: "trellis", "lstm" or "tcn".
        layers: layers of the call; of the TCN its blocks.
        width: hidden channels.
        parameters: of the net, without embedding and head.
        receptive_field: steps that an output depends on, its own included; None: all before it.
        cells_whole: cells for all outputs: one per step and layer, in the TCN one per step and convolution.
        cells: cells for the wanted outputs.
        multiply_adds: of a training step on the whole batch.
        kept: bytes that the forward pass keeps for the backward pass; of the LSTM and the TCN the least possible. None:
            autograd decides.
        streamed_cells: cells per step of a stream.
        streamed_multiply_adds: multiply-adds per step of a stream.
    """

    name: str
    layers: int
    width: int
    parameters: int
    receptive_field: int | None
    cells_whole: int
    cells: int
    multiply_adds: int
    kept: int | None
    streamed_cells: int
    streamed_multiply_adds: int


LABELS = {
    "layers": "layers (TCN: blocks)",
    "width": "width",
    "parameters": "parameters",
    "receptive_field": "receptive field, steps",
    "cells_whole": "cells for all outputs",
    "cells": "cells for the wanted outputs",
    "multiply_adds": "multiply-adds per training step",
    "kept": "bytes kept for the backward pass",
    "streamed_cells": "cells per streamed step",
    "streamed_multiply_adds": "multiply-adds per streamed step",
}


@dataclass(frozen=True)
class Explanation:
    """What `TrellisNet.explain` returns; its text is a table.

    Attributes:
        steps: steps of a sequence.
        batch_size: number of sequences.
        tail: the last n outputs are wanted; None: all.
        path: the way through the grid.
        nets: figures of the trellis, the LSTM and the TCN.
        scratch: bytes of working memory of the trellis beside those kept; None: autograd decides.
    """

    steps: int
    batch_size: int
    tail: int | None
    path: str
    nets: tuple[Figures, Figures, Figures]
    scratch: int | None

    @property
    def trellis(self) -> Figures:
        """The figures of the net itself."""
        return self.nets[0]

    @property
    def lstm(self) -> Figures:
        """The figures of the LSTM."""
        return self.nets[1]

    @property
    def tcn(self) -> Figures:
        """The figures of the TCN."""
        return self.nets[2]

    @property
    def question(self) -> str:
        """What is computed, in words."""
        wanted = "all outputs" if self.tail is None else f"the last {self.tail} of the outputs"
        return f"{self.batch_size} x {self.steps} steps, {wanted}, by the path of {self.path}"

    def rows(self) -> list[list[str]]:
        """The lines of a table: a label, then a text for each net."""
        lines = []
        for name, label in LABELS.items():
            unknown = "unlimited" if name == "receptive_field" else "as autograd keeps"
            values = [getattr(net, name) for net in self.nets]
            lines.append([label, *(unknown if value is None else f"{value:,}" for value in values)])
        return lines

    def __str__(self) -> str:
        lines = [["", *(net.name for net in self.nets)], *self.rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = [
            "  ".join([line[0].ljust(widths[0]), *(t.rjust(w) for t, w in zip(line[1:], widths[1:], strict=True))])
            for line in lines
        ]
        return "\n".join([self.question, *texts])


def explain(
    net: TrellisNet, steps: int, batch_size: int, tail: int | None, depth: int | None, path: str | None
) -> Explanation:
    """What a call of a net costs; see `TrellisNet.explain`."""
    layers = net.num_layers if depth is None else layer_count("depth", depth)
    form = read_form(net, layers, path)
    parameter = next(net.parameters())
    steps, batch_size = positive_int("steps", steps), positive_int("batch_size", batch_size)

    def call_on(length: int, batch: int, wanted: int | None) -> Call:
        x = torch.zeros((), device=parameter.device, dtype=net.kernel.dtype).expand(length, batch, net.input_size)
        return net._calls.planned(net, Sequences(x, None, False), None, wanted, form)

    call, streamed = call_on(steps, batch_size, tail), call_on(1, 1, None)
    itemsize = call.dtype.itemsize
    layout = call.derive(Layout) if isinstance(net.cell, InPlaceCell) and form.path != "steps" else None
    field = net.receptive_field_at(layers, form.path)
    own = Figures(
        "trellis",
        layers,
        net.hidden_size,
        sum(parameter.numel() for parameter in net.parameters()),
        field,
        whole_plan(steps, net.state_form.dilations(layers + 1), net.kernel_size, form.path).cells,
        call.plan.cells,
        (TRAINING + call.recompute) * multiply_adds(call),
        None if layout is None else layout.size * itemsize,
        streamed.plan.cells,
        multiply_adds(streamed, streamed=True),
    )
    seen = steps if field is None else field
    kinds: dict[str, Peer] = {
        "lstm": LstmPeer(net.input_size, 1),
        "tcn": TcnPeer(net.input_size, 1, TcnPeer.blocks_for(seen)),
    }
    lstm, tcn = (
        _figures(name, kind.of_size(own.parameters), steps, batch_size, tail, itemsize) for name, kind in kinds.items()
    )
    scratch = None if layout is None else layout.workspace * itemsize
    return Explanation(steps, batch_size, tail, form.path, (own, lstm, tcn), scratch)


def _figures(name: str, peer: Peer, steps: int, batch_size: int, tail: int | None, itemsize: int) -> Figures:
    cells, streamed = peer.cells_for(steps, tail), peer.cells_for(1, None)
    return Figures(
        name,
        peer.layers,
        peer.width,
        peer.parameters,
        peer.receptive_field,
        sum(peer.cells_for(steps, None)),
        sum(cells),
        TRAINING * batch_size * peer.multiply_adds(cells),
        batch_size * peer.kept(cells) * itemsize,
        sum(streamed),
        peer.multiply_adds(streamed),
    )


def multiply_adds(call: Call, streamed: bool = False) -> int:
    """The multiply-adds of the products of a forward pass, all sequences; those with zeros below do not count.

    Layers of one dilation share the product of the input, except in training if it is narrow: see `Injections`.
    """
    injections, steps = call.derive(Injections), call.path == "steps"
    rows = sum(injections.lengths)
    if not (injections.shared or steps or streamed):
        entered = zip(injections.of_layer, call.plan.layers, strict=True)
        rows = sum(layer.rows for number, layer in entered if number is not None)
    products = rows * call.input_taps * call.input_size * call.gate_widths[0]
    return call.batch * (products + (_products_of_steps(call) if steps else _products_of_layers(call)))


def _products_of_layers(call: Call) -> int:
    rows = sum(layer.rows for layer in call.plan.layers[1 if call.zero_below else 0 :])
    return rows * sum(_width(call, b) for b in range(len(call.blocks)))


def _products_of_steps(call: Call) -> int:
    """Per step, the older taps once per dilation, and the newest once per layer: see `engine/steps.py`."""
    newest = len(call.plan.layers[0].taps) - 1
    dilations = {layer.dilation for layer in call.plan.layers}
    alone = len(call.blocks) > 1 and len(dilations) == 1 and call.inject_every == 1  # a layer computes its group only
    total = 0
    for b in range(len(call.blocks)):
        layers = int(0 < b < call.depth) if alone else call.depth - 1
        total += len(dilations) * _width(call, b, lambda tap: tap < newest)
        total += layers * _width(call, b, lambda tap: tap == newest)
    return call.plan.wanted * total


def _width(call: Call, b: int, counts: Callable[[int], bool] = lambda tap: True) -> int:
    """The multiply-adds of a step of block b, of the taps that count."""
    channels = sum(term.rows.stop - term.rows.start for term in call.blocks[b].terms if counts(term.tap))
    return int(channels * call.gate_widths[b])
