"""Loops over the rows and columns of products that read their operands where they lie.

In: extents that are known now or when the kernel runs, and what to do for a step of them. Out:
loops at the insertion point, and what is left behind the last whole step. `unpacked_gemm.py` and
`gemv.py` call.
"""

from __future__ import annotations

from collections.abc import Callable

from nova.codegen.common.builder import Index, index, loop, sub
from nova.ir.bindings import arith, ir

Matrix = tuple[ir.Value, Index]
"""A buffer, and where in it a matrix begins."""


def turns(low: Index, high: Index, step: int, body: Callable[[Index], None]) -> None:
    """A loop; one turn that is known is none."""
    if isinstance(low, int) and isinstance(high, int) and high - low <= step:
        if low < high:
            body(low)
        return
    with loop(low, high, step) as at:
        body(at)


def rows_in_steps(extent: Index, step: int, body: Callable[[Index, int], None]) -> None:
    """Rows, or columns, in steps; what is left as one step if it is known, else one by one."""
    if isinstance(extent, int):
        end: Index = extent - extent % step
        turns(0, end, step, lambda i: body(i, step))
        if extent % step:
            body(end, extent % step)
        return
    end = sub(extent, arith.remui(extent, index(step)))
    turns(0, end, step, lambda i: body(i, step))
    if step > 1:
        turns(end, extent, 1, lambda i: body(i, 1))
