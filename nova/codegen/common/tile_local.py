"""Which buffers of a kernel are tile-local: each tile needs only its part of them.

A kernel reads its intermediate values at the same point of its grid at which it wrote them. So a
tile needs only its own part of such a buffer, which stays in the cache from tile to tile, and no
memory is planned for the whole. `bufferize-kernels` calls `is_tile_local` and leaves such a buffer
in the kernel as a `memref.alloca` of the whole shape with the attribute `nova.tile_local`. The
schedules shrink it to a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from nova.codegen.common.loop_nest import make_loop_nest
from nova.core.sizes import Size
from nova.errors import LoweringError
from nova.ir.attributes import PROLOGUE, TILE_LOCAL
from nova.ir.bindings import ir
from nova.ir.buffers import VIEWS, buffer_root, nbytes
from nova.ir.diagnostics import place_of
from nova.ir.linalg.generic import is_generic_op, shape_of
from nova.ir.symbolic.size_table import SizeTable

_POINT_BYTES = 32 << 10
"""Upper bound of one buffer's bytes per point of the grid: a tile has at least one point."""


def is_tile_local(value: Any, grid: tuple[int, ...], table: SizeTable | None = None) -> bool:
    """Whether each point of `grid` touches only its own part of a buffer of the kernel.

    `table` has the symbolic sizes of the program: a part must have a static size.
    """
    points = prod(grid)
    elements = prod(value.type.shape)
    if points <= 1 or elements % points or nbytes(value.type) > points * _POINT_BYTES:
        return False
    if table is not None and table.is_symbolic(elements // points):
        return False  # scratch memory of a tile has a static size
    users = _users(value)
    if any(PROLOGUE.has(op) for op in users):
        return False  # each block has all of it
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
    part_strides = point_strides(grid, part)
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


def static_part(value: Any, grid: Sequence[Size]) -> int:
    """Elements of a tile-local buffer per point of the grid."""
    points = prod(grid)
    part = prod(shape_of(value)) // (max(1, points) if isinstance(points, int) else points)
    if not isinstance(part, int):
        raise LoweringError(
            f"a tile-local buffer of {part} elements per point",
            where=place_of(value.owner.location),
        )
    return part


def is_tile_local_alloca(op: Any) -> bool:
    """Whether `op` is a tile-local buffer."""
    return op.name == "memref.alloca" and TILE_LOCAL.has(op)


def point_strides(sizes: Sequence[int], part: int) -> list[int]:
    """Row-major strides of `sizes` with `part` elements at each point."""
    return [part * prod(sizes[i + 1 :]) for i in range(len(sizes))]
