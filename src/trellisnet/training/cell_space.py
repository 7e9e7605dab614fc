"""The space of a search for cells: known cells to begin with, random ones, and mutations."""

from __future__ import annotations

import random
from collections.abc import Sequence

from trellisnet.core.cells.definition import MOST_GATES, PARTS, Definition, from_dict, gate_names
from trellisnet.core.cells.expressions import BINARY, MEMORY, UNARY, Node, leaves, subtrees

# "coupled" is the pooling of the QRNN. "affine-nas" is the nearest relative of the NAS cell in this space: the NAS cell
# has nine gates and the memory tanh(m_0 + c) m_1; here the outer tanh is left out, and four gates serve all its parts.
SEEDS = {
    name: from_dict({**parts, "name": name}, name)
    for name, parts in {
        "lstm": {
            "factor": "sigmoid(g1)",
            "offset": "sigmoid(g2) * tanh(g3)",
            "hidden": "sigmoid(g4) * tanh(m)",
        },
        "gru": {
            "factor": "sigmoid(g1)",
            "offset": "(1 - sigmoid(g1)) * tanh(g2 + sigmoid(g3) * g4)",
            "hidden": "m",
        },
        "coupled": {
            "factor": "sigmoid(g1)",
            "offset": "(1 - sigmoid(g1)) * tanh(g2)",
            "hidden": "sigmoid(g3) * m",
        },
        "affine-nas": {
            "factor": "tanh(sigmoid(g1) + relu(g2))",
            "offset": "tanh(sigmoid(g1) + relu(g2)) * tanh(sigmoid(g3) * relu(g4))",
            "hidden": "tanh(m * tanh(tanh(g3) + sigmoid(g4)))",
        },
    }.items()
}
LARGEST = {"factor": 3, "offset": 5, "hidden": 5}  # operations of a random expression
ATTEMPTS = 1000


def random_cell(generator: random.Random, name: str) -> Definition:
    """A cell of random expressions."""
    for _ in range(ATTEMPTS):
        names = gate_names(generator.randint(1, MOST_GATES))
        parts = []
        for part in PARTS:
            known = names if part != "hidden" else [*names, MEMORY]
            parts.append(_expression(generator, known, generator.randint(1, LARGEST[part])))
        if (found := _checked(name, parts)) is not None:
            return found
    raise AssertionError("no random cell is valid")


def mutated(cell: Definition, generator: random.Random, name: str) -> Definition:
    """The cell with one change: a leaf or an operation replaced, inserted or removed."""
    for _ in range(ATTEMPTS):
        parts = list(cell.parts)
        chosen = generator.randrange(len(PARTS))
        names = gate_names(MOST_GATES if cell.gates == MOST_GATES else cell.gates + 1)  # perhaps a new gate
        known = names if PARTS[chosen] != "hidden" else [*names, MEMORY]
        places = list(subtrees(parts[chosen]))
        parts[chosen] = _replaced(parts[chosen], generator.randrange(len(places)), generator, known)
        found = _checked(name, parts)
        if found is not None and found.parts != cell.parts:
            return found
    raise AssertionError(f"no mutation of {cell.text} is valid")


def _expression(generator: random.Random, names: Sequence[str], count: int) -> Node:
    """A random expression of n operations."""
    if count == 0:
        return Node(generator.choice(names))
    if count == 1 or generator.random() < 0.5:
        return Node(generator.choice(UNARY), (_expression(generator, names, count - 1),))
    first = generator.randrange(count)
    sides = (_expression(generator, names, first), _expression(generator, names, count - 1 - first))
    return Node(generator.choice(BINARY), sides)


def _replaced(node: Node, at: int, generator: random.Random, names: Sequence[str]) -> Node:
    """The expression with a change at its n-th subtree, counted as `subtrees` does."""
    for number, each in enumerate(node.args):
        count = len(list(subtrees(each)))
        if at < count:
            args = (*node.args[:number], _replaced(each, at, generator, names), *node.args[number + 1 :])
            return Node(node.name, args)
        at -= count
    change = generator.choice(("replace", "insert", "remove"))
    if change == "insert":
        name = generator.choice((*UNARY, *BINARY))
        other = Node(generator.choice(names))
        return Node(name, (node,) if name in UNARY else (node, other))
    if not node.args:
        return Node(generator.choice(names))
    if change == "remove":
        return generator.choice(node.args)
    return Node(generator.choice(UNARY if len(node.args) == 1 else BINARY), node.args)


def _checked(name: str, parts: Sequence[Node]) -> Definition | None:
    """The cell with gates numbered in the order in which they are read; None if it is not valid."""
    order = [each.name for part in parts for each in subtrees(part) if not each.args and each.name != MEMORY]
    numbers = {old: new for old, new in zip(dict.fromkeys(order), gate_names(len(order)), strict=False)}
    factor, offset, hidden = (_renamed(part, numbers) for part in parts)
    if not numbers or not leaves(parts[0]) or not leaves(parts[1]):
        return None
    try:
        return Definition(name, len(numbers), factor, offset, hidden)
    except ValueError:
        return None


def _renamed(node: Node, names: dict[str, str]) -> Node:
    if not node.args:
        return Node(names.get(node.name, node.name))
    return Node(node.name, tuple(_renamed(each, names) for each in node.args))
