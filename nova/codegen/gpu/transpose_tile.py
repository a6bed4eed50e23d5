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
from nova.codegen.common.index_math import advance, at, shifted
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.gpu.block_ops import (
    WARP,
    SharedMemory,
    ThreadPosition,
    barrier,
    is_less,
    split,
    when,
)
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.codegen.gpu.pointwise.elementwise import ElementwiseCode
from nova.codegen.gpu.strategy import Strategy, default_min_blocks_per_sm
from nova.codegen.gpu.tasks.block_tiles import BlockDim
from nova.core.sizes import ceildiv
from nova.ir.bindings import arith, ir, memref
from nova.ir.buffers import buffer_root
from nova.ir.index import index
from nova.ir.symbolic.size_table import Extent, is_number, typical

_SIDE = WARP
_ROWS = 8
"""Rows of a tile that the threads of a block process at a time."""
_MIN_SIDE = 8
"""Minimum elements of a side: below, tiles are mostly empty."""
_MAX_TILES = 4
"""Tiles that fit in the shared memory of a block."""
_MIN_POINTS = 4096
"""Minimum points of a kernel with transpose tiles: fewer are read from the cache."""

Operand = tuple[Any, int]
"""An op and the number of one of its operands."""


@dataclass(frozen=True)
class TransposeTilePlan:
    """Tiles over loop `across`, along which `transposed` inputs are contiguous, and the last."""

    grid: tuple[Extent, ...]
    across: int
    transposed: tuple[Operand, ...]

    @property
    def threads(self) -> int:
        return _SIDE * _ROWS

    @property
    def tiles(self) -> list[Extent]:
        """The blocks along each loop."""
        square = (self.across, len(self.grid) - 1)
        return [ceildiv(n, _SIDE) if i in square else n for i, n in enumerate(self.grid)]

    @property
    def blocks(self) -> Extent:
        return prod(self.tiles)

    @property
    def min_blocks_per_sm(self) -> int:
        return default_min_blocks_per_sm(self.blocks)


@dataclass(frozen=True)
class TransposedInputs:
    """The inputs that are contiguous along the loop `across`, not along the last loop."""

    across: int
    operands: tuple[Operand, ...]


def match_transposes(kernel: DeviceKernel) -> TransposedInputs | None:
    """Match a large elementwise kernel with inputs in another dimension order."""
    nests, grid, rank = kernel.loop_nests, kernel.grid, kernel.grid_rank
    if typical(kernel.num_points) < _MIN_POINTS or not kernel.is_structured:
        return None
    if rank < 2 or any(len(nest.loops) != rank for nest in nests):
        return None
    written = {buffer_root(v) for nest in nests for v in nest.generic.outputs}
    transposed: list[Operand] = []
    loops: set[int] = set()
    for nest in nests:
        for k in range(nest.generic.num_inputs):
            value = nest.generic.op.operands[k]
            if not isinstance(value.type, ir.MemRefType) or is_number(
                nest.loops[-1].strides[k], 0, 1
            ):
                continue
            across = [i for i in range(rank - 1) if is_number(nest.loops[i].strides[k], 1)]
            if across and buffer_root(value) not in written:
                transposed.append((nest.generic.op, k))
                loops.add(max(across, key=lambda i: typical(grid[i])))
    if len(loops) != 1:
        return None
    return TransposedInputs(loops.pop(), tuple(transposed))


def plan_transpose_tiles(
    kernel: DeviceKernel, inputs: TransposedInputs
) -> TransposeTilePlan | None:
    """Square tiles; None where they would be mostly empty, or too many for shared memory."""
    grid = kernel.grid
    short_side = min(typical(grid[inputs.across]), typical(grid[-1]))
    if len(inputs.operands) > _MAX_TILES or short_side < _MIN_SIDE:
        return None
    return TransposeTilePlan(tuple(grid), inputs.across, inputs.operands)


class TransposeTileCode:
    """Emits the ops of a kernel for one block."""

    def __init__(self, plan: TransposeTilePlan, position: ThreadPosition, shared: SharedMemory):
        self.plan = plan
        self.shared = shared
        self.column = position.lane()
        self.row = position.warp()
        self.corner = split(position.block, plan.tiles)
        for loop in (plan.across, len(plan.grid) - 1):
            self.corner[loop] = arith.muli(self.corner[loop], index(_SIDE))
        self.tiles: dict[Operand, Any] = {}

    def load(self, nest: LoopNest, buffers: Sequence[Any]) -> None:
        """Load the transposed inputs of an op into shared memory; called before `emit`."""
        for operand in range(nest.generic.num_inputs):
            key = (nest.generic.op, operand)
            if key not in self.plan.transposed:
                continue
            tile = self.shared.allocate(_SIDE * (_SIDE + 1), buffers[operand].type.element_type)
            self.tiles[key] = tile
            for first in range(0, _SIDE, _ROWS):
                row = shifted(self.row, first)
                counters = self._counters(self.column, row)
                with when(self._inside(counters)):
                    base = _position(nest, operand, counters)
                    value = memref.load(buffers[operand], [at(base)])
                    memref.store(value, tile, [_tile_offset(row, self.column)])

    def emit(
        self, ops: Sequence[tuple[LoopNest, Sequence[Any]]], captured: Mapping[Any, Any]
    ) -> None:
        """Emit all ops, at four points per thread; `load` has filled shared memory."""
        barrier()
        for first in range(0, _SIDE, _ROWS):
            row = shifted(self.row, first)
            counters = self._counters(row, self.column)
            with when(self._inside(counters)):
                code = _TilePoint(len(self.plan.grid), self.tiles, _tile_offset(self.column, row))
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

    def __init__(self, rank: int, tiles: Mapping[Operand, Any], offset: Any):
        super().__init__(rank, None)
        self.tiles = tiles
        self.offset = offset

    def _load(self, elements: Elements, operand: int, base: Any) -> list[Any]:
        tile = self.tiles.get((elements.generic.op, operand))
        if tile is None:
            return super()._load(elements, operand, base)
        return [elements.unpacked(operand, memref.load(tile, [self.offset]))]


def emit_transpose_tile(
    kernel: DeviceKernel, plan: TransposeTilePlan, position: ThreadPosition
) -> None:
    """Emit all ops for one tile."""
    flat = kernel.flat_buffers()
    code = TransposeTileCode(plan, position, kernel.shared)
    ops = [(kernel.nests[op], [flat(value) for value in op.operands]) for op in kernel.ops]
    for nest, buffers in ops:
        with nest.generic.op.location:
            code.load(nest, buffers)
    code.emit(ops, {})


def _tiles(kernel: DeviceKernel, plan: TransposeTilePlan) -> list[BlockDim] | None:
    if not all(isinstance(size, int) for size in plan.grid):
        return None
    square = (plan.across, len(plan.grid) - 1)
    sizes = enumerate(map(typical, plan.grid))
    return [BlockDim(i, n, min(n, _SIDE) if i in square else 1) for i, n in sizes]


TRANSPOSE_TILE = Strategy(
    "transpose_tile", match_transposes, plan_transpose_tiles, emit_transpose_tile, _tiles
)


def _tile_offset(row: Any, column: Any) -> Any:
    """The offset in a tile; a row is padded by one element: columns are in different banks."""
    return arith.addi(arith.muli(row, index(_SIDE + 1)), column)


def _position(nest: LoopNest, operand: int, counters: Sequence[Any]) -> Any:
    offset = nest.offsets[operand]
    bases: list[Any] = [None] * len(nest.offsets)
    bases[operand] = None if is_number(offset, 0) else index(offset)
    for counter, loop in zip(counters, nest.loops, strict=True):
        bases = advance(bases, counter, loop)
    return bases[operand]
