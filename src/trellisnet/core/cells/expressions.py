"""Small expressions of the gates g1, g2, ... and the memory m, as text and as trees.

    x = g1 | ... | g4 | m | sigmoid(x) | tanh(x) | relu(x) | 1 - x | x + x | x * x | max(x, x)

The text is parsed by Python's own parser, and only these forms are accepted: nothing is evaluated.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from trellisnet.core.checks import suggestion

MEMORY = "m"
UNARY = ("sigmoid", "tanh", "relu", "complement")  # complement: 1 - x
BINARY = ("sum", "product", "max")
MOST_NODES = 6
_FORMS = "sigmoid(x), tanh(x), relu(x), 1 - x, x + y, x * y, max(x, y)"
_MOST_LETTERS = 1000


class Node(NamedTuple):
    """An operation on nodes, or a leaf: a gate or the memory, without arguments. Equal expressions are equal nodes."""

    name: str
    args: tuple[Node, ...] = ()

    def __str__(self) -> str:
        if self.name == "complement":
            return f"1 - {_in_brackets(self.args[0], ('sum', 'complement'))}"
        if self.name in ("sum", "product"):  # the parser groups from the left
            sign, inner = (" + ", ("complement",)) if self.name == "sum" else (" * ", ("sum", "complement"))
            left, right = self.args
            return f"{_in_brackets(left, inner)}{sign}{_in_brackets(right, (*inner, self.name))}"
        return f"{self.name}({', '.join(map(str, self.args))})" if self.args else self.name


def _in_brackets(node: Node, names: tuple[str, ...]) -> str:
    return f"({node})" if node.name in names else str(node)


def subtrees(node: Node) -> Iterator[Node]:
    """All nodes of an expression, arguments first; leaves too. Equal ones repeat."""
    for each in node.args:
        yield from subtrees(each)
    yield node


def leaves(*nodes: Node) -> set[str]:
    """The names of the gates and of the memory that expressions read."""
    return {each.name for node in nodes for each in subtrees(node) if not each.args}


def size(node: Node, known: tuple[Node, ...] = ()) -> int:
    """The number of operations of an expression that those known already do not contain.

    >>> factor, offset = parse("sigmoid(g1)", "a"), parse("(1 - sigmoid(g1)) * tanh(g2)", "b")
    >>> size(offset), size(offset, (factor,))
    (4, 3)
    """
    shared = {each for one in known for each in subtrees(one)}
    return len({each for each in subtrees(node) if each.args and each not in shared})


def parse(text: Any, where: str) -> Node:
    """Read an expression; a ValueError that begins with `where` and names what is not allowed."""
    if not isinstance(text, str) or len(text) > _MOST_LETTERS:
        raise ValueError(f"{where} must be an expression such as 'sigmoid(g1)', got {str(text)[:60]!r}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{where} is not an expression: {text!r}; expected {_FORMS}") from None
    return _node(tree, where)


def _node(tree: ast.expr, where: str) -> Node:
    if isinstance(tree, ast.Name):
        return Node(tree.id)
    if isinstance(tree, ast.BinOp):
        if isinstance(tree.op, ast.Sub) and isinstance(tree.left, ast.Constant) and tree.left.value == 1:
            return Node("complement", (_node(tree.right, where),))
        names: dict[type[ast.operator], str] = {ast.Add: "sum", ast.Mult: "product"}
        if (name := names.get(type(tree.op))) is not None:
            return Node(name, (_node(tree.left, where), _node(tree.right, where)))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        known = {"sigmoid": 1, "tanh": 1, "relu": 1, "max": 2}
        count = known.get(tree.func.id)
        if count is None:
            near = suggestion(tree.func.id, known)
            raise ValueError(f"{where}: unknown function {tree.func.id!r}{near}; expected {_FORMS}")
        if len(tree.args) != count or tree.keywords:
            raise ValueError(f"{where}: {tree.func.id} takes {count} argument(s), got {ast.unparse(tree)}")
        return Node(tree.func.id, tuple(_node(each, where) for each in tree.args))
    raise ValueError(f"{where}: {ast.unparse(tree)} is not allowed; expected {_FORMS}")


_FLOATS: dict[str, Callable[..., float]] = {
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
    "relu": lambda x: max(x, 0.0),
    "complement": lambda x: 1 - x,
    "sum": operator.add,
    "product": operator.mul,
    "max": max,
}


def value(node: Node, leaf: Mapping[str, float]) -> float:
    """The value of an expression for numbers of its leaves.

    >>> value(parse("max(1 - g1, tanh(g2))", "a"), {"g1": 0.25, "g2": 0.0})
    0.75
    """
    return _FLOATS[node.name](*(value(each, leaf) for each in node.args)) if node.args else leaf[node.name]
