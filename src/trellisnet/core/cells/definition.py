"""A cell as text: three expressions in YAML, in a file or in one line.

    name: my-cell
    gates: 4
    factor: sigmoid(g1)              # a
    offset: sigmoid(g2) * tanh(g3)   # b
    hidden: sigmoid(g4) * tanh(m)    # h, from the new memory m = a * (the memory before) + b

`gates` may be left out: it is the largest gate that is read. `biases` are the initial biases, one per gate. By default
a gate that increases the factor starts at 1 and one that decreases it at -1, so that the cell begins by remembering.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellisnet.core.cells.expressions import MEMORY, MOST_NODES, Node, leaves, parse, size, value
from trellisnet.core.checks import positive_int, suggestion

KEYS = ("name", "gates", "factor", "offset", "hidden", "biases")
PARTS = ("factor", "offset", "hidden")
MOST_GATES = 4
SUFFIXES = (".yaml", ".yml")


def gate_names(gates: int) -> list[str]:
    """The names of the gates in expressions.

    >>> gate_names(2)
    ['g1', 'g2']
    """
    return [f"g{number}" for number in range(1, gates + 1)]


@dataclass(frozen=True)
class Definition:
    """Three expressions that define a cell, checked.

    Args:
        name: a name for reports.
        gates: number of gates, at most four.
        factor: a, from the gates.
        offset: b, from the gates.
        hidden: the hidden state, from the gates and the new memory m.
        biases: initial biases, one per gate; default as the module says.

    Raises:
        ValueError: an expression has an unknown name or too many nodes, reads the memory where it must not, or a gate
            is not used.
    """

    name: str
    gates: int
    factor: Node
    offset: Node
    hidden: Node
    biases: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        where = f"cell {self.name!r}"
        positive_int(f"{where}: gates", self.gates, maximum=MOST_GATES)
        known = gate_names(self.gates)
        before: tuple[Node, ...] = ()
        for part in PARTS:
            node, allowed = getattr(self, part), [*known, *[MEMORY] * (part == "hidden")]
            for leaf in sorted(leaves(node) - set(allowed)):
                if leaf == MEMORY:
                    raise ValueError(f"{where}: {part} must not read m, or the memory would not be affine: got {node}")
                if leaf in PARTS:
                    what = f"{part} must not read {leaf!r}: an expression reads gates, so that there is no cycle"
                    raise ValueError(f"{where}: {what}")
                near = suggestion(leaf, allowed)
                raise ValueError(f"{where}: {part} has an unknown name {leaf!r}{near}; known are {', '.join(allowed)}")
            if (count := size(node, before)) > MOST_NODES:
                raise ValueError(f"{where}: {part} must have at most {MOST_NODES} nodes, got {count}: {node}")
            before = (*before, node)
        unused = [gate for gate in known if gate not in leaves(*self.parts)]
        if unused:
            raise ValueError(f"{where}: gate {unused[0]} of {self.gates} is not used")
        if MEMORY not in leaves(self.hidden):
            raise ValueError(f"{where}: hidden must read the memory m, got {self.hidden}")
        if self.biases is not None and len(self.biases) != self.gates:
            raise ValueError(f"{where}: biases must be {self.gates} numbers, one per gate, got {list(self.biases)}")

    @property
    def parts(self) -> tuple[Node, Node, Node]:
        """Factor, offset and hidden."""
        return self.factor, self.offset, self.hidden

    @property
    def initial_biases(self) -> tuple[float, ...]:
        """The biases, or their default.

        >>> read_text("{factor: 1 - sigmoid(g2), offset: sigmoid(g2) * tanh(g1), hidden: m}").initial_biases
        (0.0, -1.0)
        """
        if self.biases is not None:
            return self.biases
        names = gate_names(self.gates)
        zero, found = dict.fromkeys(names, 0.0), []
        for gate in names:
            slope = value(self.factor, {**zero, gate: 1e-3}) - value(self.factor, {**zero, gate: -1e-3})
            found.append(float((slope > 0) - (slope < 0)))
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """As a mapping, as in YAML."""
        own = {"name": self.name, "gates": self.gates, **{part: str(getattr(self, part)) for part in PARTS}}
        return own if self.biases is None else {**own, "biases": list(self.biases)}

    @property
    def text(self) -> str:
        """In one line, so that it can stand wherever the name of a cell can."""
        return json.dumps(self.to_dict())


def from_dict(values: Mapping[Any, Any], where: str, name: str = "cell") -> Definition:
    """Make a definition from the mapping of a YAML text; a ValueError that names what is wrong."""
    for key in values:
        if key not in KEYS:
            raise ValueError(f"{where}: unknown key {key!r}{suggestion(str(key), KEYS)}; known are {', '.join(KEYS)}")
    if missing := [part for part in PARTS if part not in values]:
        raise ValueError(f"{where}: {missing[0]} is missing")
    nodes = {part: parse(values[part], f"{where}: {part}") for part in PARTS}
    used = [leaf for leaf in leaves(*nodes.values()) if leaf in gate_names(MOST_GATES)]
    gates = values.get("gates", max((int(leaf[1:]) for leaf in used), default=1))
    biases = values.get("biases")
    if biases is not None:
        numbers = isinstance(biases, list) and all(type(each) in (int, float) for each in biases)
        if not numbers:
            raise ValueError(f"{where}: biases must be a list of numbers, got {biases!r}")
        biases = tuple(map(float, biases))
    try:
        return Definition(str(values.get("name", name)), gates, **nodes, biases=biases)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def is_text(cell: str) -> bool:
    """Whether a text defines a cell, or is the path of a file that does; else it is a name."""
    return cell.lstrip().startswith("{") or cell.endswith(SUFFIXES)


def read_text(cell: str) -> Definition:
    """Read a definition from a YAML file, or from its text in one line in braces.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it does not define a cell.
    """
    import yaml  # noqa: PLC0415

    path = Path(cell) if cell.endswith(SUFFIXES) else None
    where = "cell" if path is None else f"cell {cell}"
    if path is not None and not path.is_file():
        raise FileNotFoundError(f"cell {cell} not found: expected a YAML file with factor, offset and hidden")
    try:
        content = yaml.safe_load(cell if path is None else path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{where} must be a mapping with the keys factor, offset and hidden, got {content!r}")
    return from_dict(content, where, "cell" if path is None else path.stem)
