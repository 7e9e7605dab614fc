"""Expressions and their gradients as programs: lists of operations that write into given tensors.

The gradient is derived once, when a cell is built: in reverse from the results to the leaves, as autograd does it, but
only with the operations that remain. A program names its tensors by numbers: first those it is given, then its
registers, which hold the values in between and are used again when nobody reads them any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trellisnet.core.cells.expressions import BINARY, Node, subtrees

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input
_relu_backward = torch.ops.aten.threshold_backward.grad_input

# every operation is element-wise, and may write to one of the tensors that it reads
OPERATIONS: dict[str, Callable[..., object]] = {
    "sigmoid": lambda out, x: torch.sigmoid(x, out=out),
    "tanh": lambda out, x: torch.tanh(x, out=out),
    "relu": lambda out, x: torch.clamp_min(x, 0, out=out),
    "complement": lambda out, x: torch.neg(x, out=out).add_(1),
    "sum": lambda out, x, y: torch.add(x, y, out=out),
    "minus": lambda out, x, y: torch.sub(x, y, out=out),
    "product": lambda out, x, y: torch.mul(x, y, out=out),
    "max": lambda out, x, y: torch.maximum(x, y, out=out),
    "plus product": lambda out, x, y, z: torch.addcmul(x, y, z, out=out),  # x + y z
    "minus product": lambda out, x, y, z: torch.addcmul(x, y, z, value=-1, out=out),  # x - y z
    "copy": lambda out, x: out.copy_(x),
    "negative": lambda out, x: torch.neg(x, out=out),
    "zero": lambda out: out.zero_(),
    # the share of the first of two numbers in the gradient of their maximum: equal ones get a half each, as in torch
    "first is max": lambda out, x, y: torch.sub(x, y, out=out).sign_().add_(1).mul_(0.5),
    "sigmoid gradient": lambda out, grad, y: _sigmoid_backward(grad, y, grad_input=out),
    "tanh gradient": lambda out, grad, y: _tanh_backward(grad, y, grad_input=out),
    "relu gradient": lambda out, grad, y: _relu_backward(grad, y, 0, grad_input=out),
}


class Step(NamedTuple):
    """An operation, the number of the tensor that it writes, and those that it reads."""

    operation: str
    out: int
    reads: tuple[int, ...]


class Program(NamedTuple):
    """Steps on tensors: the given ones, then a number of registers."""

    steps: tuple[Step, ...]
    registers: int

    def run(self, given: Sequence[Tensor], free: Sequence[Tensor] = ()) -> None:
        """Run the steps. `free` tensors are used as registers first; others are scratch memory."""
        more = self.registers - len(free)
        tensors = [*given, *free, *(_scratch(more, given[0]) if more > 0 else ())]
        for operation, out, reads in self.steps:
            OPERATIONS[operation](tensors[out], *[tensors[number] for number in reads])


class Builder:
    """Builds a program.

    Args:
        given: names of the given tensors.
        leaves: leaves of expressions that have a tensor, with the name of that tensor.
    """

    def __init__(self, given: Sequence[str], leaves: dict[Node, str]) -> None:
        self.given = {name: number for number, name in enumerate(given)}
        self.known = {leaf: self.given[name] for leaf, name in leaves.items()}  # values that are computed already
        self.steps: list[Step] = []
        self.count = len(given)

    def add(self, operation: str, *reads: int, out: str | None = None) -> int:
        """Add an operation; its result is a new value, or is written to a given tensor."""
        number = self.count if out is None else self.given[out]
        self.count += out is None
        self.steps.append(Step(operation, number, reads))
        return number

    def value(self, node: Node) -> int:
        """The value of an expression, computed where it is first asked for."""
        if node not in self.known:
            operation, reads = self._operation(node)
            self.known[node] = self.add(operation, *reads)
        return self.known[node]

    def write(self, node: Node, out: str) -> None:
        """Write the value of an expression to a given tensor."""
        if node in self.known:
            self.add("copy", self.known[node], out=out)
        else:
            operation, reads = self._operation(node)
            self.add(operation, *reads, out=out)

    def _operation(self, node: Node) -> tuple[str, tuple[int, ...]]:
        """The operation that computes a node from values; a product within a sum or with 1 - x costs no pass."""
        inner = {"sum": "product", "product": "complement"}.get(node.name)
        for one, other in (node.args, node.args[::-1]) if inner else ():
            if one.name == inner and one not in self.known:
                if inner == "product":
                    return "plus product", (self.value(other), *map(self.value, one.args))
                kept = self.value(other)
                return "minus product", (kept, self.value(one.args[0]), kept)
        return node.name, tuple(map(self.value, node.args))

    def gradients(self, seeds: Iterable[tuple[Node, tuple[int, ...]]], wanted: set[Node]) -> dict[Node, Gradient]:
        """The gradients of some leaves, from those of the results: each a value, or the product of two."""
        seeds = list(seeds)
        found: dict[Node, Gradient] = {}
        for node, factors in seeds:
            self._contribute(found, node, 1, factors)
        order = list(dict.fromkeys(each for node, _ in seeds for each in subtrees(node)))
        reaching: set[Node] = set()
        for node in order:  # arguments come first
            if node in wanted or any(each in reaching for each in node.args):
                reaching.add(node)
        for node in reversed(order):
            if node.args and node in reaching and node in found:
                self._backward(found, node, reaching)
        return {leaf: found[leaf] for leaf in wanted if leaf in found}

    def _backward(self, found: dict[Node, Gradient], node: Node, reaching: set[Node]) -> None:
        """Pass the gradient of an operation on to its arguments."""
        sign, grad = found[node]
        passed: list[tuple[int, ...]]
        if node.name in BINARY:
            x, y = node.args
            if node.name == "max":
                first = self.add("product", grad, self.add("first is max", self.value(x), self.value(y)))
                passed = [(first,), (self.add("minus", grad, first),)]
            else:
                passed = (
                    [(grad, self.value(y)), (grad, self.value(x))] if node.name == "product" else [(grad,), (grad,)]
                )
        elif node.name == "complement":
            sign, passed = -sign, [(grad,)]
        else:
            passed = [(self.add(f"{node.name} gradient", grad, self.value(node)),)]
        for each, factors in zip(node.args, passed, strict=True):
            if each in reaching:
                self._contribute(found, each, sign, factors)

    def _contribute(self, found: dict[Node, Gradient], node: Node, sign: int, factors: tuple[int, ...]) -> None:
        """Add a value, or a product of two, to the gradient of a node."""
        if node not in found:
            found[node] = Gradient(sign, factors[0] if len(factors) == 1 else self.add("product", *factors))
            return
        before, same = found[node], found[node].sign == sign
        operations = ("minus", "sum") if len(factors) == 1 else ("minus product", "plus product")
        found[node] = Gradient(before.sign, self.add(operations[same], before.number, *factors))

    def program(self, used_up: Sequence[str] = (), target: str | None = None) -> Program:
        """The program, with as few registers as possible.

        Args:
            used_up: given tensors that may be overwritten after they are read for the last time.
            target: a given tensor that is only written; it serves as a register before.
        """
        last = {number: at for at, step in enumerate(self.steps) for number in (*step.reads, step.out)}
        first = len(self.given)
        places = {number: number for number in range(first)}
        free = [] if target is None else [self.given[target]]
        reusable, registers, steps = {self.given[name] for name in used_up}, 0, []
        for at, (operation, out, reads) in enumerate(self.steps):
            where = tuple(places[number] for number in reads)
            free += [places[n] for n in dict.fromkeys(reads) if last[n] == at and (n >= first or n in reusable)]
            if out not in places:
                if not free:
                    free.append(first + registers)
                    registers += 1
                places[out] = free.pop()
            steps.append(Step(operation, places[out], where))
        return Program(tuple(steps), registers)


class Gradient(NamedTuple):
    """The gradient of a node: 1 or -1 times a value."""

    sign: int
    number: int


_local = threading.local()


def _scratch(count: int, like: Tensor) -> list[Tensor]:
    """Tensors of any content. On a CPU each thread keeps them: the system gives new memory page by page."""
    if like.device.type != "cpu":
        return [torch.empty_like(like, memory_format=torch.contiguous_format) for _ in range(count)]
    kept: list[Tensor] = _local.__dict__.setdefault(str(like.dtype), [])
    wanted = like.numel()
    for i in range(count):
        if i == len(kept) or len(kept[i]) < wanted:
            with torch.inference_mode(False):  # it may serve training later
                kept[i : i + 1] = [torch.empty(wanted, dtype=like.dtype)]
    return [each[:wanted].view(like.shape) for each in kept[:count]]
