"""Matches structured ops that are attentions, and the roles of their loops.

Input: the loop nest of a linalg.generic whose body is a point of attention. Output: an `Attention`.
The attention schedules of CPUs and GPUs read its operands as a `Matrix` each.
"""

from __future__ import annotations

from nova.codegen.common.loop_nest import LoopNest
from nova.core.records import record
from nova.ir.attention_ops import ROLES, AttentionKind, find_point, kind_of_point
from nova.ir.bindings import ir
from nova.ir.index import Index, add, mul
from nova.ir.symbolic.size_table import Extent


@record
class Attention:
    """An attention over a loop nest: `roles` are the loops i, j, e, f; the others are batch."""

    spec: AttentionKind
    nest: LoopNest
    roles: dict[str, int]
    type: str

    @property
    def batch(self) -> list[int]:
        return [i for i in range(len(self.nest.loops)) if i not in self.roles.values()]

    def size(self, role: str) -> Extent:
        return self.nest.loops[self.roles[role]].size

    def point_strides(self) -> dict[int, Extent]:
        """Batch loop -> how many points lie between its iterations, in the order of the batch."""
        strides: dict[int, Extent] = {}
        count: Extent = 1
        for number in sorted(self.batch, key=lambda i: self.nest.loops[i].dims, reverse=True):
            strides[number] = count
            count = count * self.nest.loops[number].size
        return strides

    @property
    def names(self) -> tuple[str, ...]:
        """The operands in order; results are called `to_...`."""
        return (*self.spec.operands, *(f"to_{n}" for n in self.spec.results))


def find_attention(nest: LoopNest) -> Attention | None:
    """Match `nest` as an attention; None if it is not one."""
    point = find_point(nest.generic.op)
    if point is None:
        return None
    # No loop of such a loop nest is merged with another.
    position = {loop.dims[0]: i for i, loop in enumerate(nest.loops)}
    batch = len(nest.loops) - len(ROLES)
    roles = {role: position[batch + i] for i, role in enumerate(ROLES)}
    return Attention(kind_of_point(point), nest, roles, str(point.results[0].type))


@record
class Matrix:
    """Rows of an operand at one point of the batch: a flat buffer, its start and strides."""

    buffer: ir.Value
    type: str
    start: Index
    row: Extent
    column: Extent

    def at(self, row: Index, column: Index = 0) -> Index:
        return add(self.start, add(mul(row, self.row), mul(column, self.column)))
