"""Loops over the rows and columns of unpacked GEMMs, which read their operands in place.

Input: static or dynamic extents, and the body of a step. Output: loops at the insertion point, and
the remainder after the last whole step. `unpacked_gemm.py` and `gemv.py` call these.
"""

from __future__ import annotations

from collections.abc import Callable

from nova.codegen.common.builder import loop
from nova.ir.bindings import arith, ir
from nova.ir.index import Index, index, sub

Matrix = tuple[ir.Value, Index]
"""A buffer, and the offset of a matrix in it."""


def step_loop(low: Index, high: Index, step: int, body: Callable[[Index], None]) -> None:
    """A loop; a loop of a single static iteration is omitted."""
    if isinstance(low, int) and isinstance(high, int) and high - low <= step:
        if low < high:
            body(low)
        return
    with loop(low, high, step) as at:
        body(at)


def rows_in_steps(extent: Index, step: int, body: Callable[[Index, int], None]) -> None:
    """Rows, or columns, in steps; a static remainder is one step, a dynamic one single steps."""
    if isinstance(extent, int):
        end: Index = extent - extent % step
        step_loop(0, end, step, lambda i: body(i, step))
        if extent % step:
            body(end, extent % step)
        return
    end = sub(extent, arith.remui(extent, index(step)))
    step_loop(0, end, step, lambda i: body(i, step))
    if step > 1:
        step_loop(end, extent, 1, lambda i: body(i, 1))
