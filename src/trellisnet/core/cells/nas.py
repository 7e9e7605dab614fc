"""The cell found by neural architecture search (Zoph, Le, ICLR 2017), as a cell of a trellis."""

from __future__ import annotations

from torch import Tensor

from trellisnet.core.cells.base import Cell


class NasCell(Cell):
    """The NAS cell, with ordinary operations. Gates: p_0 to p_2, the factors a and b of p_3, p_4 to p_7.

    s = sigmoid
    m_0 = tanh(s(p_0) relu(p_1))        m_1 = tanh(s(p_2) + relu(a b))
    m_2 = tanh(tanh(p_4) s(p_5))        m_3 = s(tanh(p_6) + s(p_7))
    c' = tanh(m_0 + c) m_1              h' = tanh(c' tanh(m_2 + m_3))

    As a recurrent cell, a is the input's part and b the hidden state's. Here both are outputs of the kernel, as in
    `GruCell`. The memory is not affine in the memory before, so sweeps cannot run the cell.
    """

    gates, has_memory = 9, True

    def __call__(self, pre: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        p0, p1, p2, a, b, p4, p5, p6, p7 = pre.unbind(-2)
        assert memory is not None
        m0 = (p0.sigmoid() * p1.relu()).tanh()
        m1 = (p2.sigmoid() + (a * b).relu()).tanh()
        m2 = (p4.tanh() * p5.sigmoid()).tanh()
        m3 = (p6.tanh() + p7.sigmoid()).sigmoid()
        memory = (m0 + memory).tanh() * m1
        return (memory * (m2 + m3).tanh()).tanh(), memory
