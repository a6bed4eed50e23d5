"""The tiles of blocks: which points of a kernel's grid a block of its launch computes.

In: a kernel of the device and the plan of its launch, whose strategy says how blocks divide the
grid. Out: the footprint of the launch, with one tile for each block, in the order of the numbers of
blocks. `lower-device-kernels` stores it; the task table, the CUDA graph and the simulation of a
device's time read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nova.codegen.common.footprint import ByteRange, Footprint, find_footprint
from nova.codegen.gpu.device_kernel import DeviceKernel
from nova.errors import LoweringError
from nova.ir.bindings import ir
from nova.ir.buffers import nbytes
from nova.ir.kernel import Kernel
from nova.ir.walk import contains_op


@dataclass(frozen=True)
class BlockDim:
    """A dimension of the numbers of blocks: `tile` of `size` points of loop `loop` of the grid.

    Point i of it is point `i * scale` of the loop: grouped tile orders split a loop in two.
    """

    loop: int
    size: int
    tile: int
    scale: int = 1


def adjacent_points(grid: Sequence[Any], points: int) -> list[BlockDim] | None:
    """Blocks of so many adjacent points of the grid; None where they end inside of a row."""
    dims: list[BlockDim] = []
    for loop in reversed(range(len(grid))):
        size = grid[loop]
        if not isinstance(size, int):
            return None
        fills = points % size == 0 if size else False
        if not fills and size % points and loop > 0:
            return None
        dims.insert(0, BlockDim(loop, size, min(size, points)))
        points = points // size if fills else 1
    return dims


def gemm_tiles(
    gemm: Any, contraction: Any, tile_rows: int, tile_columns: int
) -> list[BlockDim] | None:
    """The tiles of a GEMM, one for each block, in grouped order (`gemm/tile_order.py`)."""
    spec, (rows, columns) = gemm.gemm.contraction, gemm.tiles
    sizes = (spec.m, spec.n, rows, columns, *(loop.size for loop in gemm.gemm.enclosing))
    if not all(isinstance(size, int) for size in sizes):
        return None
    row_loop, column_loop = contraction.m, contraction.n
    if gemm.swapped:
        row_loop, column_loop = column_loop, row_loop
    loops = zip(contraction.enclosing, gemm.gemm.enclosing, strict=True)
    dims = [BlockDim(number, loop.size, 1) for number, loop in loops if loop.parallel]
    # The order of one column of tiles is that of its rows.
    group = rows if columns == 1 else min(gemm.group, rows)
    if group < rows:
        if spec.m % (group * tile_rows):
            return None
        dims.append(BlockDim(row_loop, rows // group, 1, group * tile_rows))
    height = spec.m if group == rows else group * tile_rows
    column = BlockDim(column_loop, spec.n, tile_columns)
    return [*dims, column, BlockDim(row_loop, height, tile_rows)]


def block_footprint(
    kernel: DeviceKernel, blocks: int, dims: Sequence[BlockDim] | None
) -> Footprint:
    """The footprint of a launch of so many blocks; without `dims`, all touch all of the buffers."""
    if dims is None or prod(-(-dim.size // dim.tile) for dim in dims) != blocks:
        return _whole_buffers(kernel, blocks)
    tile = [1] * kernel.grid_rank
    for dim in dims:
        if dim.scale == 1:
            tile[dim.loop] = dim.tile
    try:
        points = find_footprint(
            kernel.function, kernel.ops, kernel.global_nests, tuple(kernel.grid), tuple(tile)
        )
    except LoweringError:  # blocks share elements, or write at computed positions
        return _whole_buffers(kernel, blocks)
    whole = _whole_buffers(kernel, blocks)

    def shifted(ranges: Sequence[ByteRange]) -> tuple[ByteRange, ...]:
        return tuple(
            ByteRange(r.low, r.high, tuple(r.strides[dim.loop] * dim.scale for dim in dims))
            for r in ranges
        )

    reads = tuple(shifted(ranges) for ranges in points.reads)
    # A kernel writes all results: those that the ops do not name, its intermediate values, whole.
    writes = tuple(
        shifted(ranges) if ranges or not all_bytes else tuple(_at_rank(all_bytes, len(dims)))
        for ranges, all_bytes in zip(points.writes, whole.writes, strict=True)
    )
    grid, sizes = tuple(dim.size for dim in dims), tuple(dim.tile for dim in dims)
    return Footprint(grid, sizes, reads, writes)


def _whole_buffers(kernel: DeviceKernel, blocks: int) -> Footprint:
    ins = Kernel(kernel.function).ins
    ranges = [
        (ByteRange(0, nbytes(a.type), (0,)),)
        if isinstance(a.type, ir.MemRefType) and nbytes(a.type)
        else ()
        for a in kernel.function.entry_block.arguments
    ]
    reads = tuple(r if i < ins else () for i, r in enumerate(ranges))
    writes = tuple(() if i < ins else r for i, r in enumerate(ranges))
    return Footprint((blocks,), (1,), reads, writes)


def _at_rank(ranges: Sequence[ByteRange], rank: int) -> list[ByteRange]:
    return [ByteRange(r.low, r.high, (0,) * rank) for r in ranges]


def uses_tensor_cores(kernel: Any) -> bool:
    """Whether the code of a kernel has matrix instructions (`mma.sync`, `wgmma`)."""
    return contains_op(kernel, _is_mma)


def _is_mma(op: Any) -> bool:
    name = op.name
    return ".mma" in name or (name == "llvm.inline_asm" and "mma" in _asm(op))


def _asm(op: Any) -> str:
    return str(op.attributes["asm_string"].value)
