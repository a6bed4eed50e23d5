"""Kernels with symbolic sizes: checks before their lowering, loads of sizes, and their expressions.

`lower-kernels` calls these for the kernels of a program with symbolic sizes only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

from nova.core.sizes import Size, parse_size
from nova.errors import LoweringError
from nova.ir.attributes import SYMBOLIC
from nova.ir.bindings import ir
from nova.ir.buffers import element_bytes
from nova.ir.diagnostics import place_of
from nova.ir.linalg.generic import GenericOp, is_generic_op, shape_of
from nova.ir.size_values import SizeValues
from nova.ir.symbolic_sizes import SizeTable, active_table
from nova.ir.walk import find_ops

if TYPE_CHECKING:
    from nova.codegen.common.footprint import ByteRange
    from nova.codegen.cpu.schedule import KernelSchedule

SIZE_OP = "nova.size"
"""The op whose result is the value of an expression over the dims."""


@contextmanager
def checked_symbolic(kernel: Any) -> Iterator[None]:
    """Refuse a kernel with constants that are representatives of sizes: they would be baked in."""
    table = active_table()
    assert table is not None
    for op in find_ops(kernel, "arith.constant"):
        value = op.attributes["value"]
        if isinstance(value, ir.IntegerAttr | ir.FloatAttr) and _stands_for_size(
            table, value.value
        ):
            raise LoweringError(
                f"@{kernel.name.value} has the constant {value.value}, which stands for a "
                "symbolic size",
                where=place_of(op.location),
                hint=f"compute it from {SIZE_OP}",
            )
    yield


def _stands_for_size(table: SizeTable, value: float) -> bool:
    numbers = [value] if isfinite(value) else []
    numbers += [1 / value] if value and isfinite(value) else []
    for number in numbers:
        whole = round(abs(number))
        if whole and abs(abs(number) - whole) <= 1e-6 * whole and table.is_symbolic(whole):
            return True
    return False


def load_sizes(ops: Sequence[Any], values: SizeValues) -> list[Any]:
    """Replace the size ops among `ops` by loads; return the others."""
    others = []
    for op in ops:
        if op.name != SIZE_OP:
            others.append(op)
            continue
        table = active_table()
        assert table is not None
        size = parse_size(op.attributes["expr"].value, table.generic_dims)
        op.results[0].replace_all_uses_with(values.value_of(size))
        op.erase()
    return others


# --- expressions of a lowered kernel --------------------------------------------------------------


def store_symbolic(kernel: Any, schedule: KernelSchedule) -> None:
    """Store the expressions of a kernel's tiles, work, bytes and access footprint."""
    footprint = schedule.footprint
    numbers = {
        "tiles": [schedule.tiles],
        "work": [_work(schedule)],
        "bytes": [_moved_bytes(kernel)],
        "loops": footprint.grid,
    }
    entries = {name: _texts(sizes) for name, sizes in numbers.items()}
    for name, arguments in (("reads", footprint.reads), ("writes", footprint.writes)):
        rows = [ir.ArrayAttr.get([_range_texts(r) for r in ranges]) for ranges in arguments]
        entries[name] = ir.ArrayAttr.get(rows)
    SYMBOLIC.set(kernel, ir.DictAttr.get(entries))


def symbolic_numbers(kernel: Any, name: str) -> list[Size]:
    """A list of `store_symbolic`, of a kernel of the program whose table is active."""
    table = active_table()
    assert table is not None
    return [parse_size(text.value, table.generic_dims) for text in SYMBOLIC.get(kernel)[name]]


def _texts(sizes: Sequence[Size]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.StringAttr.get(str(size)) for size in sizes])


def _range_texts(byte_range: ByteRange) -> ir.ArrayAttr:
    return _texts((byte_range.low, byte_range.high, *byte_range.strides))


def _work(schedule: KernelSchedule) -> Size:
    """The scalar operations of a kernel."""
    structured = [GenericOp(op) for op in schedule.ops if is_generic_op(op)]
    counts = [prod(g.sizes) * max(1, len(g.block.operations) - 1) for g in structured]
    return sum(counts) if counts else schedule.work


def _moved_bytes(kernel: Any) -> Size:
    """Bytes of all buffer arguments of a kernel."""
    total: Size = 0
    for argument in kernel.entry_block.arguments:
        if isinstance(argument.type, ir.MemRefType):
            total = total + prod(shape_of(argument)) * element_bytes(argument.type)
    return total
