"""Structured ops as loops over flat buffers: elementwise ops, reductions, small contractions.

Input: a loop nest and the buffers of its operands. Output: scf loops at the insertion point, over
vectors where `vectorize.py` finds a loop for them and over scalars otherwise. The kernel schedules
call this for every op without a schedule of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nova.codegen.common.index_math import Range
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.cpu.scalar_loops import ScalarLoops
from nova.codegen.cpu.vector_loops import VectorLoops
from nova.codegen.cpu.vectorize import find_vector_plan
from nova.codegen.cpu.window_loops import WindowLoops, find_window_plan
from nova.core.targets import Target
from nova.ir.index import index

__all__ = ["LoopEmitter", "Range", "index"]


class LoopEmitter:
    """Emits one loop nest at the insertion point."""

    def __init__(
        self,
        nest: LoopNest,
        buffers: Sequence[Any],
        ranges: Sequence[Range | None],
        captured: Mapping[Any, Any] | None = None,
        target: Target | None = None,
    ):
        """`buffers` are flat memrefs (or scalars) per operand; `ranges` per loop, None for all.

        `captured` maps the outer values that the body uses to their replacements. Without a
        `target` there is no vectorization, and the loops are scalar.
        """
        self.nest = nest
        self.buffers = buffers
        self.ranges = ranges
        self.captured = captured or {}
        self.target = target

    def emit(self) -> bool:
        """Emit the loops; return whether they are vectorized."""
        args = self.nest, self.buffers, self.ranges, self.captured
        if self.target is not None:
            window = find_window_plan(self.nest, self.buffers, self.ranges, self.target)
            if window is not None:
                self._emit_remainder(window.column, WindowLoops(*args, window).emit())
                return True
            plan = find_vector_plan(self.nest, self.buffers, self.target)
            if plan is not None:
                self._emit_remainder(plan.loop, VectorLoops(*args, plan).emit())
                return True
        ScalarLoops(*args).emit()
        return False

    def _emit_remainder(self, loop: int, remainder: Range | None) -> None:
        """The iterations of the vectorized loop that are too few for a vector."""
        if remainder is None:
            return
        ranges = list(self.ranges)
        ranges[loop] = remainder
        across = self.nest.loops[loop].parallel
        ScalarLoops(self.nest, self.buffers, ranges, self.captured, like_vectors=across).emit()
