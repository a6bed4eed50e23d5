"""Tile-local buffers: each tile keeps its part of a kernel's intermediate values on the stack.

A kernel reads its intermediate values at the same point of its grid at which it wrote them. So a
tile needs only its own part of such a buffer, which stays in the cache from tile to tile, and no
memory is planned for the whole. `bufferize-kernels` calls `is_tile_local` and leaves such a buffer
in the kernel as a `memref.alloca` of the whole shape with the attribute `nova.tile_local`; the
schedule shrinks it to a tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from nova.codegen.common.loop_nest import LoopNest, make_loop_nest
from nova.codegen.cpu.loops import Range, index
from nova.core.records import record
from nova.ir.attributes import TILE_LOCAL
from nova.ir.bindings import arith, ir, memref
from nova.ir.buffers import VIEWS, buffer_root, nbytes
from nova.ir.linalg.generic import is_generic_op

_POINT_BYTES = 32 << 10
"""Upper bound of one buffer's bytes per point of the grid: a tile has at least one point."""


def is_tile_local(value: Any, grid: tuple[int, ...]) -> bool:
    """Whether each point of `grid` touches only its own part of a buffer of the kernel."""
    points = prod(grid)
    elements = prod(value.type.shape)
    if points <= 1 or elements % points or nbytes(value.type) > points * _POINT_BYTES:
        return False
    users = _users(value)
    return all(is_generic_op(op) and _at_own_point(op, value, grid) for op in users)


def _users(value: Any) -> list[Any]:
    users: list[Any] = []
    for use in value.uses:
        op = use.owner.operation
        users += _users(op.results[0]) if op.name in VIEWS else [op]
    return users


def _at_own_point(op: Any, value: Any, grid: tuple[int, ...]) -> bool:
    nest = make_loop_nest(op)
    grid_loops = nest.loops[: len(grid)]
    if tuple(loop.size for loop in grid_loops) != grid or not all(
        loop.parallel for loop in grid_loops
    ):
        return False
    # Such ops run at positions relative to the tile, see `KernelSchedule._emit_loops`.
    if nest.indexed & {d for loop in grid_loops for d in loop.dims}:
        return False
    if any(stride < 0 for loop in grid_loops for stride in loop.strides):
        return False
    part = prod(value.type.shape) // prod(grid)
    part_strides = _strides(grid, part)
    for number, operand in enumerate(op.operands):
        if not isinstance(operand.type, ir.MemRefType) or buffer_root(operand) != value:
            continue
        steps = [(loop.size - 1) * loop.strides[number] for loop in nest.loops[len(grid) :]]
        low = nest.offsets[number] + sum(s for s in steps if s < 0)
        high = nest.offsets[number] + sum(s for s in steps if s > 0)
        aligned = all(
            loop.size == 1 or loop.strides[number] == stride
            for loop, stride in zip(grid_loops, part_strides, strict=True)
        )
        if not aligned or low < 0 or high >= part:
            return False
    return True


def _strides(sizes: Sequence[int], part: int) -> list[int]:
    """Row-major strides of `sizes` with `part` elements at each point."""
    return [part * prod(sizes[i + 1 :]) for i in range(len(sizes))]


@record
class TileLocalBuffers:
    """The tile-local buffers of a kernel, and the elements of each per point of the grid."""

    parts: Mapping[Any, int]

    @staticmethod
    def of(ops: Sequence[Any], grid: tuple[int, ...]) -> TileLocalBuffers:
        """The buffers that `bufferize-kernels` left in a kernel over `grid`."""
        values = [op.results[0] for op in ops if is_tile_local_alloca(op)]
        return TileLocalBuffers({v: prod(v.type.shape) // max(1, prod(grid)) for v in values})

    def nbytes(self, tile: Sequence[int]) -> int:
        """Bytes of all buffers of a tile."""
        return sum(
            part * prod(tile) * nbytes(value.type) // max(1, prod(value.type.shape))
            for value, part in self.parts.items()
        )

    def localized(self, nest: LoopNest, tile: Sequence[int]) -> LoopNest:
        """The loop nest with the strides of the tile-local buffers."""
        loops = list(nest.loops)
        for number in self.operands(nest):
            strides = _strides(tile, self.parts[buffer_root(nest.generic.op.operands[number])])
            for i, stride in enumerate(strides):
                old = loops[i].strides
                new = (*old[:number], stride, *old[number + 1 :])
                loops[i] = replace(loops[i], strides=new)
        return replace(nest, loops=tuple(loops))

    def operands(self, nest: LoopNest) -> list[int]:
        """Which operands of a nest are tile-local."""
        return [
            number
            for number, value in enumerate(nest.generic.op.operands)
            if isinstance(value.type, ir.MemRefType) and buffer_root(value) in self.parts
        ]

    def allocate(self, tile: Sequence[int], block: Any) -> dict[Any, Any]:
        """Allocate a flat buffer for each, at the start of the kernel."""
        buffers: dict[Any, Any] = {}
        with ir.InsertionPoint.at_block_begin(block):
            for value, part in self.parts.items():
                local_type = ir.MemRefType.get([part * prod(tile)], value.type.element_type)
                with value.owner.location:
                    buffers[value] = memref.AllocaOp(local_type, [], [], alignment=64).result
        return buffers


def is_tile_local_alloca(op: Any) -> bool:
    """Whether `op` is a tile-local buffer."""
    return op.name == "memref.alloca" and TILE_LOCAL.has(op)


def first_point(nest: LoopNest, operand: int, ranges: Sequence[Range | None]) -> Any | None:
    """The offset of the first point of a tile in an operand, less the nest's offset."""
    total = None
    for tile_range, loop in zip(ranges, nest.loops, strict=False):
        if tile_range is not None and loop.strides[operand]:
            step = arith.muli(tile_range[0], index(loop.strides[operand]))
            total = step if total is None else arith.addi(total, step)
    return total


def shifted(buffer: Any, start: Any | None) -> Any:
    """A flat buffer from element `start` on."""
    if start is None or not isinstance(buffer.type, ir.MemRefType):
        return buffer
    size = buffer.type.shape[0]
    layout = ir.StridedLayoutAttr.get(ir.ShapedType.get_dynamic_stride_or_offset(), [1])
    view_type = ir.MemRefType.get([size], buffer.type.element_type, layout)
    return memref.ReinterpretCastOp(
        view_type,
        buffer,
        [start],
        [],
        [],
        static_offsets=[ir.ShapedType.get_dynamic_stride_or_offset()],
        static_sizes=[size],
        static_strides=[1],
    ).result
