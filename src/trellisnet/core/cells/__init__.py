"""Cells: how pre-activations become a state.

A cell maps the pre-activations of one step of one layer, and the memory one dilation earlier, to the new hidden state
and the new memory.
"""

from __future__ import annotations

from trellisnet.core.cells.base import AffineCell, Cell, InPlaceCell, Views
from trellisnet.core.cells.definition import is_text, read_text
from trellisnet.core.cells.expression import ExpressionCell
from trellisnet.core.cells.gated import CoupledCell, GruCell, LstmCell
from trellisnet.core.cells.highway import HighwayCell
from trellisnet.core.cells.nas import NasCell
from trellisnet.core.cells.rnn import ReluCell, TanhCell
from trellisnet.core.checks import one_of

__all__ = ["CELLS", "AffineCell", "Cell", "ExpressionCell", "InPlaceCell", "Views", "make_cell"]

# The engine runs an `InPlaceCell` fast, and the others like a user's cell, with ordinary operations.
CELLS: dict[str, Cell] = {
    "tanh": TanhCell(),
    "relu": ReluCell(),
    "lstm": LstmCell(),
    "coupled": CoupledCell(),
    "gru": GruCell(),
    "highway": HighwayCell(),
    "nas": NasCell(),
}
BODIES_ONLY = ("darts", "enas")


def make_cell(cell: str | Cell) -> Cell:
    """Return the cell of that name, the user's own cell after a check of its two attributes, or that of a YAML text.

    A text is the path of a YAML file, or the same in one line in braces: see `definition.py`.
    """
    if isinstance(cell, Cell):
        if not isinstance(getattr(cell, "gates", None), int) or cell.gates < 1:
            raise ValueError(f"cell.gates must be a positive integer, got {getattr(cell, 'gates', None)!r}")
        if not isinstance(getattr(cell, "has_memory", None), bool):
            raise ValueError(f"cell.has_memory must be True or False, got {getattr(cell, 'has_memory', None)!r}")
        if cell.gate_biases is not None and len(cell.gate_biases) != cell.gates:
            raise ValueError(f"cell.gate_biases must have {cell.gates} values, one per gate, got {cell.gate_biases}")
        return cell
    if not isinstance(cell, str):
        raise TypeError(f"cell must be a name or a Cell, got {cell!r}")
    if cell in BODIES_ONLY:
        raise ValueError(
            f"cell {cell!r} cannot be a trellis cell: it multiplies by matrices of its own between its activations, "
            f"and a trellis has only those of its kernel; it is a body: body={cell!r}"
        )
    if is_text(cell):
        return ExpressionCell(read_text(cell))
    return CELLS[one_of("cell", cell, CELLS)]
