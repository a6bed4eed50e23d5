"""Tile-local buffers on CPUs: each tile keeps its part of them on the stack.

Input: the buffers that `nova/codegen/common/tile_local.py` matches. Output: a stack buffer of the
size of a tile for each, and loop nests with its strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from nova.codegen.common.index_math import distance
from nova.codegen.common.loop_nest import LoopNest
from nova.codegen.common.tile_local import is_tile_local_alloca, point_strides, static_part
from nova.codegen.cpu.loops import Range, index
from nova.core.records import record
from nova.core.sizes import Size
from nova.ir.bindings import arith, ir, memref
from nova.ir.buffers import buffer_root, nbytes
from nova.ir.symbolic.size_table import is_number


@record
class TileLocalBuffers:
    """The tile-local buffers of a kernel, and the elements of each per point of the grid."""

    parts: Mapping[Any, int]

    @staticmethod
    def of(ops: Sequence[Any], grid: tuple[Size, ...]) -> TileLocalBuffers:
        """The buffers that `bufferize-kernels` left in a kernel over `grid`."""
        values = [op.results[0] for op in ops if is_tile_local_alloca(op)]
        return TileLocalBuffers({v: static_part(v, grid) for v in values})

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
            strides = point_strides(tile, self.parts[buffer_root(nest.generic.op.operands[number])])
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


def first_point(nest: LoopNest, operand: int, ranges: Sequence[Range | None]) -> Any | None:
    """The offset of the first point of a tile in an operand, less the nest's offset."""
    total = None
    for tile_range, loop in zip(ranges, nest.loops, strict=False):
        if tile_range is not None and not is_number(loop.strides[operand], 0):
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


def relative_range(span: Range, origin: Any) -> Range:
    """A range relative to `origin`; a range of static length keeps it."""
    low, high = span
    start = index(0) if low == origin else arith.subi(low, origin)
    extent = distance(low, high)
    return start, arith.subi(high, origin) if extent is None else arith.addi(start, index(extent))
