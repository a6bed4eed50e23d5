"""The tables of a program with symbolic sizes: placeholders where numbers depend on sizes.

`tables.py` calls this for kernels and buffers of such a program; `nova/artifact/symbolic.py` packs
the result.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from nova.artifact.symbolic import SIZE_BYTES, Placeholders, SymbolicSizes
from nova.artifact.tables import BufferSpec, KernelSpec
from nova.artifact.tilings import Tiling
from nova.codegen.common.size_loads import symbolic_numbers
from nova.core.sizes import Size, SizeExpr
from nova.ir.attributes import SIZE_VALUES
from nova.ir.buffers import element_bytes
from nova.ir.linalg.generic import shape_of
from nova.ir.symbolic.size_table import active_table
from nova.ir.symbolic.size_values import SIZES_BUFFER


def read_sizes(main: Any, placeholders: Placeholders) -> SymbolicSizes:
    """The symbolic sizes of a program, whose tables were read with `placeholders`."""
    table = active_table()
    assert table is not None
    arguments = list(main.entry_block.arguments)[:-1]  # without the workspace
    numbers = {n: table.size(n) for argument in arguments for n in argument.type.shape}
    shapes = {n: placeholders.number(s) for n, s in numbers.items() if isinstance(s, SizeExpr)}
    return SymbolicSizes(
        table.dims,
        table.representatives,
        len(SIZE_VALUES.get(main)),
        placeholders.expressions,
        shapes,
    )


def symbolic_bytes(buffer: Any, sizes: Placeholders) -> int:
    """The bytes of a buffer."""
    return sizes.of(prod(shape_of(buffer)) * element_bytes(buffer.type))


def sizes_buffer(main: Any, op: Any) -> BufferSpec | None:
    """The buffer of the values of sizes, if `op` gets it."""
    if op.name != "memref.get_global" or op.attributes["name"].value != SIZES_BUFFER:
        return None
    return BufferSpec("sizes", 0, SIZE_BYTES * len(SIZE_VALUES.get(main)))


def symbolic_work(kernel: Any) -> Size:
    """The scalar operations of a kernel."""
    return symbolic_numbers(kernel, "work")[0]


def symbolic_spec(
    function: Any, spec: KernelSpec, tiling: Tiling, sizes: Placeholders
) -> KernelSpec:
    """A kernel with placeholders for its tiles and costs, and for the numbers of its tiling."""
    names = ("tiles", "work", "bytes")
    numbers = [symbolic_numbers(function, name)[0] for name in names]
    tiles, work, moved = map(sizes.of, numbers)
    ranges = tuple(
        replace(
            r, low=sizes.of(r.low), high=sizes.of(r.high), strides=tuple(map(sizes.of, r.strides))
        )
        for r in tiling.ranges
    )
    grid = tuple(map(sizes.of, tiling.grid))
    tiling = replace(tiling, grid=grid, ranges=ranges)
    return replace(spec, grid=tiles, flops=work, bytes=moved, tiling=tiling)
