"""A cell from three expressions, with a gradient that is derived from them."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from trellisnet.core.cells.base import AffineCell, InPlaceCell, Views
from trellisnet.core.cells.definition import Definition, gate_names
from trellisnet.core.cells.expressions import MEMORY, Node, leaves, subtrees
from trellisnet.core.cells.programs import Builder, Program

_PLAIN: dict[str, Any] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "complement": lambda x: 1 - x,
    "sum": torch.add,
    "product": torch.mul,
    "max": torch.maximum,
}
_ACTIVATIONS = ("sigmoid", "tanh", "relu")  # their gradients follow from their values
_OLD, _NEW, _GRAD_HIDDEN, _GRAD_MEMORY = "memory before", "memory", "grad hidden", "grad memory"


class ExpressionCell(AffineCell, InPlaceCell):
    """A cell from three expressions: see `definition.py` for the text, `programs.py` for the gradient.

    A gate that is read through one activation only is stored activated, as in the cells that are written by hand. All
    others are stored as they are, and what is computed from them is computed again in the backward pass.

    >>> from trellisnet.core.cells.definition import read_text
    >>> cell = ExpressionCell(read_text("{factor: sigmoid(g1), offset: tanh(g2), hidden: relu(m)}"))
    >>> cell.gates, cell.gate_biases
    (2, (1.0, 0.0))
    """

    weight_scale = 2.0  # as the other gated cells

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.gates, self.gate_biases = definition.gates, definition.initial_biases
        self._names = gate_names(self.gates)
        activations = [_activation(definition, name) for name in self._names]
        # neighbouring gates with the same activation are activated by one operation
        self._runs: list[tuple[str, slice]] = []
        for activation, group in groupby(range(self.gates), key=lambda i: activations[i]):
            numbers = list(group)
            if activation is not None:
                self._runs.append((activation, slice(numbers[0], numbers[-1] + 1)))
        gates = map(Node, self._names)
        self._stored = {
            gate if activation is None else Node(activation, (gate,)): gate.name
            for gate, activation in zip(gates, activations, strict=True)
        }
        self._compile()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.definition,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.definition.text})"

    # the definition, with ordinary operations

    def affine(self, gates: Views) -> tuple[Tensor, Tensor]:
        known = self._known(gates)
        return _plain(self.definition.factor, known), _plain(self.definition.offset, known)

    def expose(self, gates: Views, memory: Tensor) -> Tensor:
        return _plain(self.definition.hidden, {**self._known(gates), Node(MEMORY): memory})

    def _known(self, gates: Views) -> dict[Node, Tensor]:
        return {Node(name): gate for name, gate in zip(self._names, gates, strict=True)}

    # the same in place

    def views(self, pre: Tensor) -> Views:
        return *pre.unbind(-2), *(pre[..., run, :] for _, run in self._runs)

    def activate_(self, views: Views) -> None:
        for (activation, _), run in zip(self._runs, views[self.gates :], strict=True):
            getattr(run, f"{activation}_")()

    def factor(self, views: Views) -> Tensor:
        stored = self._stored.get(self.definition.factor)
        if stored is not None:
            return views[self._names.index(stored)]
        out = torch.empty_like(views[0], memory_format=torch.contiguous_format)
        self._factor.run([*views[: self.gates], out])
        return out

    def offset_(self, views: Views, memory_out: Tensor) -> None:
        self._offset.run([*views[: self.gates], memory_out])

    def expose_(self, views: Views, memory_out: Tensor | None, hidden_out: Tensor) -> None:
        assert memory_out is not None
        self._hidden.run([*views[: self.gates], memory_out, hidden_out])

    def expose_backward_(self, views, memory_out, grad_hidden, grad_memory, scratch):  # type: ignore[no-untyped-def]
        own = scratch is not memory_out  # with sweeps; else `scratch` has what we still read
        if self._separate:
            free = [scratch] * (own and self._hidden_backward.registers > 0)
            self._hidden_backward.run([*views[: self.gates], memory_out, grad_hidden, grad_memory], free)
            return
        self._hidden_backward.run([*views[: self.gates], memory_out, grad_hidden, grad_memory])
        if own:  # `affine_backward_` needs the memory, and gets `scratch`
            scratch.copy_(memory_out)

    def affine_backward_(self, views: Views, memory: Tensor | None, grad_memory: Tensor, free: Views) -> None:
        program, given = self._affine_backward[memory is not None], [*views[: self.gates], grad_memory]
        if memory is not None:
            given.append(memory)
        if self._separate:
            program.run(given, free[: program.registers])
        else:
            program.run([*given, *free])

    def _compile(self) -> None:
        """Write the programs of the three expressions and of their gradients."""
        factor, offset, hidden = self.definition.parts
        gates = self._names
        self._factor, self._offset = (self._evaluation(node, gates) for node in (factor, offset))
        self._hidden = self._evaluation(hidden, [*gates, _NEW])
        # where no gate is read both by `hidden` and by the others, its gradients need not wait for those of the memory
        remembered = leaves(factor, offset)
        self._separate = not remembered & leaves(hidden)
        builder = self._builder([*gates, _NEW, _GRAD_HIDDEN, _GRAD_MEMORY])
        wanted = {Node(MEMORY), *(self._slots(leaves(hidden)) if self._separate else ())}
        found = builder.gradients([(hidden, (builder.given[_GRAD_HIDDEN],))], wanted)
        if (own := found.pop(Node(MEMORY), None)) is not None:
            operation, total = ("sum", "minus")[own.sign < 0], builder.given[_GRAD_MEMORY]
            builder.add(operation, total, own.number, out=_GRAD_MEMORY)
        self._finish(builder, found)
        self._hidden_backward = builder.program(used_up=[_GRAD_HIDDEN] * self._separate)
        self._affine_backward = [self._affine_gradient(with_memory) for with_memory in (False, True)]

    def _affine_gradient(self, with_memory: bool) -> Program:
        """The program of the gradients of all gates that those of `hidden` have not written."""
        factor, offset, hidden = self.definition.parts
        builder = self._builder(
            [*self._names, _GRAD_MEMORY, *[_OLD] * with_memory, *[_GRAD_HIDDEN, _NEW] * (not self._separate)]
        )
        grad = builder.given[_GRAD_MEMORY]
        seeds: list[tuple[Node, tuple[int, ...]]] = [(offset, (grad,))]
        if with_memory:
            seeds.append((factor, (grad, builder.given[_OLD])))
        if not self._separate:
            seeds.append((hidden, (builder.given[_GRAD_HIDDEN],)))
        slots = self._slots(leaves(factor, offset) if self._separate else set(self._names))
        found = builder.gradients(seeds, slots)
        self._finish(builder, found)
        for slot in slots - found.keys():
            builder.add("zero", out=self._stored[slot])
        return builder.program(used_up=[_GRAD_MEMORY])

    def _slots(self, names: set[str]) -> set[Node]:
        """What is stored of some gates."""
        return {node for node, name in self._stored.items() if name in names}

    def _finish(self, builder: Builder, found: dict[Node, Any]) -> None:
        """Overwrite what is stored of gates with the gradients of their pre-activations, after all else is read."""
        for slot, (sign, number) in found.items():
            name = self._stored[slot]
            if slot.args:
                builder.add(f"{slot.name} gradient", number, builder.given[name], out=name)
            else:
                builder.add("copy", number, out=name)
            if sign < 0:
                builder.add("negative", builder.given[name], out=name)

    def _builder(self, given: list[str]) -> Builder:
        memory = {Node(MEMORY): _NEW} if _NEW in given else {}
        return Builder(given, {**self._stored, **memory})

    def _evaluation(self, node: Node, given: list[str]) -> Program:
        builder = self._builder([*given, "out"])
        builder.write(node, "out")
        return builder.program(target="out")


def _activation(definition: Definition, gate: str) -> str | None:
    """The one activation through which all expressions read a gate; None if they read it otherwise."""
    nodes = [each for part in definition.parts for each in subtrees(part)]
    readers = {each.name for each in nodes if Node(gate) in each.args}
    bare = Node(gate) in definition.parts
    return readers.pop() if not bare and len(readers) == 1 and readers <= set(_ACTIVATIONS) else None


def _plain(node: Node, known: dict[Node, Tensor]) -> Tensor:
    """The value of an expression with ordinary operations; `known` collects those of its parts."""
    if node not in known:
        known[node] = _PLAIN[node.name](*(_plain(each, known) for each in node.args))
    return known[node]
