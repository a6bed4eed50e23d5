"""Transposes through shared memory: elementwise ops whose inputs have another dimension order.

Input: the loop nests of an elementwise kernel, one of which reads an input that is contiguous along
another loop than the output. Output: a `TransposeTilePlan`, or None, and the code of a block. A
block has a square tile of points: it reads such inputs in their own order into shared memory, and
continues in the order of the output, so that loads and stores are both coalesced. `schedule.py`
calls this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nova.codegen.common.elements import Elements
from nova.codegen.common.index_math import advance, at, index, shifted
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import WARP, Place, SharedMemory, barrier, is_less, split, when
from nova.codegen.gpu.elementwise import ElementwiseCode
from nova.ir.bindings import arith, ir, memref
from nova.ir.buffers import buffer_root

_SIDE = WARP
_ROWS = 8
"""Rows of a tile that the threads of a block process at a time."""
_LEAST = 8
"""Minimum elements of a side: below, tiles are mostly empty."""

_MOST_TURNED = 4
"""Tiles that fit in the shared memory of a block."""

Operand = tuple[Any, int]
"""An op and the number of one of its operands."""


@dataclass(frozen=True)
class TransposeTilePlan:
    """Tiles over loop `across`, along which inputs `turned` are contiguous, and the last loop."""

    grid: tuple[int, ...]
    across: int
    turned: tuple[Operand, ...]

    @property
    def threads(self) -> int:
        return _SIDE * _ROWS

    @property
    def tiles(self) -> list[int]:
        """The blocks along each loop."""
        square = (self.across, len(self.grid) - 1)
        return [-(-n // _SIDE) if i in square else n for i, n in enumerate(self.grid)]

    @property
    def blocks(self) -> int:
        return prod(self.tiles)


def plan_tiles(nests: Sequence[LoopNest], grid: Sequence[int]) -> TransposeTilePlan | None:
    """The plan for a kernel whose `nests` have no loops except those of `grid`."""
    rank = len(grid)
    if rank < 2 or any(len(nest.loops) != rank for nest in nests):
        return None
    written = {buffer_root(v) for nest in nests for v in nest.generic.outputs}
    turned: list[Operand] = []
    found: set[int] = set()
    for nest in nests:
        for k in range(nest.generic.num_inputs):
            value = nest.generic.op.operands[k]
            if not isinstance(value.type, ir.MemRefType) or nest.loops[-1].strides[k] in (0, 1):
                continue
            across = [i for i in range(rank - 1) if nest.loops[i].strides[k] == 1]
            if across and buffer_root(value) not in written:
                turned.append((nest.generic.op, k))
                found.add(max(across, key=lambda i: grid[i]))
    if len(found) != 1 or len(turned) > _MOST_TURNED:
        return None
    (loop,) = found
    return (
        TransposeTilePlan(tuple(grid), loop, tuple(turned))
        if min(grid[loop], grid[-1]) >= _LEAST
        else None
    )


class TransposeTileCode:
    """Emits the ops of a kernel for one block."""

    def __init__(self, plan: TransposeTilePlan, place: Place, shared: SharedMemory):
        self.plan = plan
        self.shared = shared
        self.column = place.lane()
        self.row = place.warp()
        self.corner = split(place.block, plan.tiles)
        for loop in (plan.across, len(plan.grid) - 1):
            self.corner[loop] = arith.muli(self.corner[loop], index(_SIDE))
        self.tiles: dict[Operand, Any] = {}

    def load(self, nest: LoopNest, buffers: Sequence[Any]) -> None:
        """Load the transposed inputs of an op into shared memory; called before `emit`."""
        for operand in range(nest.generic.num_inputs):
            key = (nest.generic.op, operand)
            if key not in self.plan.turned:
                continue
            tile = self.shared.allocate(_SIDE * (_SIDE + 1), buffers[operand].type.element_type)
            self.tiles[key] = tile
            for first in range(0, _SIDE, _ROWS):
                row = shifted(self.row, first)
                counters = self._counters(self.column, row)
                with when(self._inside(counters)):
                    base = _position(nest, operand, counters)
                    value = memref.load(buffers[operand], [at(base)])
                    memref.store(value, tile, [_place(row, self.column)])

    def emit(
        self, ops: Sequence[tuple[LoopNest, Sequence[Any]]], captured: Mapping[Any, Any]
    ) -> None:
        """Emit all ops, at four points per thread; `load` has filled shared memory."""
        barrier()
        for first in range(0, _SIDE, _ROWS):
            row = shifted(self.row, first)
            counters = self._counters(row, self.column)
            with when(self._inside(counters)):
                code = _TilePoint(len(self.plan.grid), self.tiles, _place(self.column, row))
                for nest, buffers in ops:
                    with nest.generic.op.location:
                        code.emit(nest, buffers, counters, captured)

    def _counters(self, across: Any, last: Any) -> list[Any]:
        counters = list(self.corner)
        counters[self.plan.across] = arith.addi(counters[self.plan.across], across)
        counters[-1] = arith.addi(counters[-1], last)
        return counters

    def _inside(self, counters: Sequence[Any]) -> Any:
        grid, i = self.plan.grid, self.plan.across
        return arith.andi(
            is_less(counters[i], index(grid[i])), is_less(counters[-1], index(grid[-1]))
        )


class _TilePoint(ElementwiseCode):
    """One point, whose transposed inputs are in shared memory."""

    def __init__(self, rank: int, tiles: Mapping[Operand, Any], place: Any):
        super().__init__(rank, None)
        self.tiles = tiles
        self.place = place

    def _load(self, elements: Elements, operand: int, base: Any) -> list[Any]:
        tile = self.tiles.get((elements.generic.op, operand))
        if tile is None:
            return super()._load(elements, operand, base)
        return [elements.unpacked(operand, memref.load(tile, [self.place]))]


def _place(row: Any, column: Any) -> Any:
    """A row is padded by one element: columns are in different banks."""
    return arith.addi(arith.muli(row, index(_SIDE + 1)), column)


def _position(nest: LoopNest, operand: int, counters: Sequence[Any]) -> Any:
    offset = nest.offsets[operand]
    bases: list[Any] = [None] * len(nest.offsets)
    bases[operand] = None if offset == 0 else index(offset)
    for counter, loop in zip(counters, nest.loops, strict=True):
        bases = advance(bases, counter, loop)
    return bases[operand]
