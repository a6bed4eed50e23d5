"""Structured ops as loops over flat buffers: elementwise work, reductions, small contractions.

In: a nest and the buffers behind its operands. Out: scf loops at the insertion point, over vectors
where `lanes` finds a loop for them and over scalars otherwise. The kernel schedules call this for
every op that has no schedule of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nova.codegen.common.index_math import Range, index
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.cpu.scalar_loops import ScalarLoops
from nova.codegen.cpu.vector_loops import VectorLoops
from nova.codegen.cpu.vectorize import find_vector_plan
from nova.core.targets import Target

__all__ = ["LoopEmitter", "Range", "index"]


class LoopEmitter:
    """Emits one nest at the insertion point."""

    def __init__(
        self,
        nest: LoopNest,
        buffers: Sequence[Any],
        ranges: Sequence[Range | None],
        captured: Mapping[Any, Any] | None = None,
        target: Target | None = None,
    ):
        """`buffers` are flat memrefs (or scalars) per operand; `ranges` per loop, None for all.

        `captured` gives the values to use for those from outside that the body uses. Without a
        `target` there is no vector to choose, and the loops are scalar.
        """
        self.nest = nest
        self.buffers = buffers
        self.ranges = ranges
        self.captured = captured or {}
        self.target = target

    def emit(self) -> bool:
        """Write the loops; whether they are over vectors."""
        lanes = find_vector_plan(self.nest, self.buffers, self.target) if self.target else None
        if lanes is None:
            ScalarLoops(self.nest, self.buffers, self.ranges, self.captured).emit()
            return False
        left = VectorLoops(self.nest, self.buffers, self.ranges, self.captured, lanes).emit()
        if left is not None:
            ranges = list(self.ranges)
            ranges[lanes.loop] = left
            across = self.nest.loops[lanes.loop].parallel
            ScalarLoops(self.nest, self.buffers, ranges, self.captured, like_vectors=across).emit()
        return True
