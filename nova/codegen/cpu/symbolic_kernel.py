"""The expressions of a CPU kernel with symbolic sizes: tiles, work, bytes and access footprint.

`lower-kernels` calls `store_symbolic` for the kernels of a program with symbolic sizes only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nova.codegen.common.footprint import ByteRange, Footprint
from nova.codegen.common.size_loads import moved_sizes, size_texts, symbolic_numbers
from nova.core.sizes import Size, parse_size
from nova.ir.attributes import SYMBOLIC
from nova.ir.bindings import ir
from nova.ir.kernel import Kernel
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.symbolic.size_table import active_table

if TYPE_CHECKING:
    from nova.codegen.cpu.schedule import KernelSchedule


def store_symbolic(kernel: Any, schedule: KernelSchedule) -> None:
    """Store the expressions of a kernel's tiles, work, bytes and access footprint."""
    footprint = schedule.footprint
    numbers = {
        "tiles": [schedule.tiles],
        "work": [_work(schedule)],
        "bytes": [moved_sizes(kernel)],
        "loops": footprint.grid,
    }
    entries = {name: size_texts(sizes) for name, sizes in numbers.items()}
    for name, arguments in (("reads", footprint.reads), ("writes", footprint.writes)):
        rows = [ir.ArrayAttr.get([_range_texts(r) for r in ranges]) for ranges in arguments]
        entries[name] = ir.ArrayAttr.get(rows)
    SYMBOLIC.set(kernel, ir.DictAttr.get(entries))


def symbolic_footprint(kernel: Any) -> Footprint:
    """The access footprint of `store_symbolic`."""
    table = active_table()
    assert table is not None
    dims, entries = table.generic_dims, SYMBOLIC.get(kernel)

    def ranges(name: str) -> tuple[tuple[ByteRange, ...], ...]:
        arguments = []
        for rows in entries[name]:
            sizes = [[parse_size(text.value, dims) for text in row] for row in rows]
            arguments.append(tuple(ByteRange(low, high, tuple(s)) for low, high, *s in sizes))
        return tuple(arguments)

    grid = tuple(symbolic_numbers(kernel, "loops"))
    return Footprint(grid, Kernel(kernel).tile, ranges("reads"), ranges("writes"))


def _range_texts(byte_range: ByteRange) -> ir.ArrayAttr:
    return size_texts((byte_range.low, byte_range.high, *byte_range.strides))


def _work(schedule: KernelSchedule) -> Size:
    """The scalar operations of a kernel."""
    structured = [GenericOp(op) for op in schedule.ops if is_generic_op(op)]
    return sum(g.operations for g in structured) if structured else schedule.work
