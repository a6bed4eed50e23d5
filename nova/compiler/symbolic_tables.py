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
from nova.ir.attributes import LAUNCH
from nova.ir.buffers import element_bytes
from nova.ir.control_flow.functions import Control, is_control
from nova.ir.linalg.generic import shape_of
from nova.ir.symbolic.size_table import active_table
from nova.ir.symbolic.size_values import SIZES_BUFFER
from nova.ir.walk import functions_by_name
from nova.passes.control.region_memory import WHILE_ITERATIONS


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
        placeholders.value_count,
        placeholders.expressions,
        shapes,
    )


def symbolic_bytes(buffer: Any, sizes: Placeholders) -> int:
    """The bytes of a buffer."""
    return sizes.of(prod(shape_of(buffer)) * element_bytes(buffer.type))


def sizes_buffer(op: Any, sizes: Placeholders) -> BufferSpec | None:
    """The buffer of the values of sizes, if `op` gets it."""
    if op.name != "memref.get_global" or op.attributes["name"].value != SIZES_BUFFER:
        return None
    return BufferSpec("sizes", 0, SIZE_BYTES * sizes.value_count)


def symbolic_work(kernel: Any) -> Size:
    """The scalar operations of a kernel of a CPU, or the flops of one of a device."""
    return symbolic_numbers(kernel, "flops" if LAUNCH.has(kernel) else "work")[0]


def host_work(host: Any) -> Size:
    """The scalar operations of the calls in `main` or in the function of a region."""
    named = functions_by_name(host.operation.parent.opview)
    calls = [op for op in host.entry_block.operations if op.operation.name == "func.call"]
    total: Size = 0
    for op in calls:
        function = named[op.callee.value]
        total = total + (
            control_work(function) if is_control(function) else symbolic_work(function)
        )
    return total


def control_work(function: Any) -> Size:
    """The scalar operations of a loop or branch; those of all branches together."""
    table, control = active_table(), Control.of(function)
    assert table is not None
    named = functions_by_name(function.operation.parent.opview)
    work = sum(host_work(named[region]) for region in control.regions)
    if control.construct == "for":
        return work * table.size(control.length)
    return work * (WHILE_ITERATIONS if control.construct == "while" else 1)


def symbolic_control(function: Any, spec: KernelSpec, sizes: Placeholders) -> KernelSpec:
    """A loop or branch with placeholders for its length, costs and byte ranges.

    The runtime computes the range of its last operand, the memory of the regions.
    """
    table = active_table()
    assert table is not None and spec.control is not None and spec.tiling is not None
    types = list(function.type.inputs)[:-1]
    nbytes = [prod(map(table.size, t.shape)) * element_bytes(t) for t in types]
    ranges = tuple(
        replace(r, high=sizes.of(nbytes[r.operand])) if r.operand < len(nbytes) else r
        for r in spec.tiling.ranges
    )
    return replace(
        spec,
        flops=sizes.of(control_work(function)),
        bytes=sizes.of(sum(nbytes)),
        control=replace(spec.control, length=sizes.of(table.size(spec.control.length))),
        tiling=replace(spec.tiling, ranges=ranges),
    )


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
