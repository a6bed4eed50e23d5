"""Column reductions by several threads per column: sums over rows, such as a bias gradient.

Input: the loop nests of a kernel over columns: reductions along each column, and ops on their
results. Output: a `ColumnReducePlan`, or None, and the code of a thread. The lanes of a warp have
adjacent columns, so that loads of rows are coalesced; the warps of a block take every `parts`th
row, and their results are combined in shared memory, in order. `schedule.py` calls this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from typing import Any

from nova.codegen.common.cascade_sum import Cascade
from nova.codegen.common.combine import combiner, identity
from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import index
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.cpu.vectorize import find_combiners
from nova.codegen.gpu.block_ops import (
    WARP,
    Place,
    SharedMemory,
    barrier,
    is_equal,
    is_less,
    when,
)
from nova.codegen.gpu.elementwise import ElementwiseCode
from nova.codegen.gpu.rowwise_plan import (
    BUSY,
    along_row,
    goes_along,
    keeps_places,
    last_writes,
)
from nova.ir.bindings import arith, ir, memref, scf

_MOST_PARTS = 32
_TERMS = 4
"""Minimum rows per thread, if there are that many."""


@dataclass(frozen=True)
class ColumnReducePlan:
    """A block has `WARP` columns, whose rows are divided among `parts` warps."""

    columns: int
    parts: int
    shared_ops: int
    """Ops up to the last reduction: all threads take part in those."""
    stored: Mapping[tuple[Any, int], bool]

    @property
    def threads(self) -> int:
        return WARP * self.parts

    @property
    def blocks(self) -> int:
        return -(-self.columns // WARP)


def plan_columns(
    nests: Sequence[LoopNest], others: Sequence[Any], grid: Sequence[int], results: set[Any]
) -> ColumnReducePlan | None:
    """The plan for `nests` over the columns of `grid`, if one thread per column is too few.

    `results` are the buffers that outlive the kernel; `others` are unstructured ops.
    """
    rank, columns = len(grid), prod(grid)
    reductions = [i for i, nest in enumerate(nests) if along_row(nest, rank)]
    if not grid or not reductions or columns >= BUSY:
        return None
    if not all(goes_along(nest, rank) for nest in nests):
        return None
    if any(
        along_row(nests[i], rank)[0].parallel or not _reads_rows(nests[i], rank) for i in reductions
    ):
        return None
    shared = reductions[-1] + 1
    if not keeps_places(nests, others, rank, nests[:shared]):
        return None
    terms = min(along_row(nests[i], rank)[0].size for i in reductions)
    parts = 1
    while parts < _MOST_PARTS and parts * _TERMS < terms and columns * parts < 4 * BUSY:
        parts *= 2
    return ColumnReducePlan(columns, parts, shared, last_writes(nests, rank, results))


def _reads_rows(nest: LoopNest, rank: int) -> bool:
    """Whether adjacent columns are contiguous in memory, in each row."""
    last, row = nest.loops[rank - 1], along_row(nest, rank)[0]
    return 1 in last.strides and 1 not in row.strides


class ColumnReduceCode(ElementwiseCode):
    """The code of a thread for its column; every thread has the results of the reductions."""

    def __init__(self, plan: ColumnReducePlan, place: Place, rank: int, shared: SharedMemory):
        super().__init__(rank, None)
        self.plan = plan
        self.part = arith.divui(place.thread, index(WARP))
        self.lane_number = place.lane()
        self.number = arith.addi(arith.muli(place.block, index(WARP)), self.lane_number)
        first = is_equal(self.part, index(0))
        ragged = plan.columns % WARP
        inside = is_less(self.number, index(plan.columns)) if ragged else None
        self.owns = arith.andi(first, inside) if inside else first
        # Threads past the last column read the last one.
        clamped = arith.select(inside, self.number, index(plan.columns - 1)) if inside else None
        self.column = self.number if clamped is None else clamped
        self.shared = shared
        self.rooms: dict[str, Any] = {}
        self.alone = False

    def reserve(self, nests: Sequence[LoopNest]) -> None:
        """Allocate shared memory for the partial results of a column, at the top of the launch."""
        for nest in nests:
            for argument in list(nest.generic.block.arguments)[nest.generic.num_inputs :]:
                key = str(argument.type)
                reduces = bool(along_row(nest, self.grid_rank))
                if reduces and self.plan.parts > 1 and key not in self.rooms:
                    room = self.shared.allocate(self.plan.parts * WARP, argument.type)
                    self.rooms[key] = room

    def finish(self) -> AbstractContextManager[None]:
        """After the last reduction: one thread per column continues."""
        self.alone = True
        return when(self.owns)

    def _totals(
        self,
        elements: Elements,
        loops: list[int],
        bases: list[Any],
        ivs: list[dict[int, Any]],
    ) -> list[list[Any]]:
        nest = elements.nest
        (number,) = [i for i in loops if nest.loops[i].size != 1] or loops[-1:]
        names = find_combiners(nest)
        assert names is not None, "the plan has only reductions that combine"
        arguments = list(elements.generic.block.arguments)[elements.generic.num_inputs :]
        units = [identity(n, a.type) for n, a in zip(names, arguments, strict=True)]
        size, parts = nest.loops[number].size, self.plan.parts

        def turn(row: Any, values: list[Any]) -> list[Any]:
            where, own = self._inside(nest, number, row, bases, ivs)
            made = self._apply(elements, where, [[value] for value in values], own)
            return [value for (value,) in made]

        def part_turn(number: Any, values: list[Any]) -> list[Any]:
            return turn(arith.addi(arith.muli(number, index(parts)), self.part), values)

        found = Cascade(names).turns(size // parts, 1, units, part_turn)
        if rest := size % parts:
            more = scf.IfOp(is_less(self.part, index(rest)), [v.type for v in found], has_else=True)
            with ir.InsertionPoint(more.then_block):
                row = arith.addi(self.part, index(size - rest))
                scf.YieldOp(turn(row, found))
            with ir.InsertionPoint(more.else_block):
                scf.YieldOp(found)
            found = list(more.results)
        before = self._outputs(elements, bases)
        return [
            [combiner(name)(old, self._together(value, name))]
            for name, value, (old,) in zip(names, found, before, strict=True)
        ]

    def _together(self, value: Any, name: str) -> Any:
        """Combine the partial results of the column, in each of its threads."""
        if self.plan.parts == 1:
            return value
        room = self.rooms[str(value.type)]
        barrier()  # others may still read the previous contents
        place = arith.addi(arith.muli(self.part, index(WARP)), self.lane_number)
        memref.store(value, room, [place])
        barrier()
        given = [
            memref.load(room, [arith.addi(self.lane_number, index(k * WARP))])
            for k in range(self.plan.parts)
        ]
        while len(given) > 1:
            given = [combiner(name)(a, b) for a, b in zip(given[::2], given[1::2], strict=True)]
        return given[0]

    def _store(self, elements: Elements, values: list[list[Any]], bases: list[Any]) -> None:
        for i, points in enumerate(values):
            operand = elements.generic.num_inputs + i
            if self.plan.stored[elements.generic.op, i]:
                if self.alone:
                    self._put(elements, operand, points, bases[operand])
                else:
                    with when(self.owns):
                        self._put(elements, operand, points, bases[operand])
            self._remember(elements, operand, points)
