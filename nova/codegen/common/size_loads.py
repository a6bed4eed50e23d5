"""Kernels with symbolic sizes: checks before their lowering, loads of sizes, and expressions.

`lower-kernels` and `lower-device-kernels` call these for a program with symbolic sizes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import Any

from nova.codegen.common.flat_buffers import flatten
from nova.core.sizes import Size, SizeExpr, parse_size
from nova.errors import LoweringError
from nova.ir.attributes import MAY_BE_EMPTY, SLICED, SYMBOLIC
from nova.ir.bindings import arith, ir, memref, scf
from nova.ir.buffers import buffer_root, element_bytes
from nova.ir.diagnostics import place_of
from nova.ir.dialect import SIZE
from nova.ir.index import Index, add, binary, compare, index, mul, sub
from nova.ir.linalg.generic import shape_of
from nova.ir.symbolic.size_table import SizeTable, active_table, least_size
from nova.ir.symbolic.size_values import SizeValues
from nova.ir.walk import find_ops

_OTHER_ACCESSES = ("memref.subview", "memref.copy", "memref.dim", "memref.view")
"""Ops whose lowering uses the sizes of a buffer's type."""


def check_constants(kernel: Any) -> None:
    """Refuse a kernel with a float constant that is a representative: it would be baked in."""
    table = active_table()
    assert table is not None
    for op in find_ops(kernel, "arith.constant"):
        value = op.attributes["value"]
        if isinstance(value, ir.FloatAttr) and _stands_for_size(table, value.value):
            raise LoweringError(
                f"@{kernel.name.value} has the constant {value.value}, which stands for a "
                "symbolic size",
                where=place_of(op.location),
                hint=f"compute it from {SIZE}",
            )


def _stands_for_size(table: SizeTable, value: float) -> bool:
    numbers = [value] if isfinite(value) else []
    numbers += [1 / value] if value and isfinite(value) else []
    for number in numbers:
        integer = round(abs(number))
        if integer and abs(abs(number) - integer) <= 1e-6 * integer and table.is_symbolic(integer):
            return True
    return False


def load_sizes(kernel: Any, values: SizeValues) -> None:
    """Replace size ops and constants that stand for sizes by loads, and make accesses flat.

    Loads of buffers that may be empty are marked for `guard_empty_buffers`.
    """
    table = active_table()
    assert table is not None
    for op in find_ops(kernel, SIZE):
        size = parse_size(op.attributes["expr"].value, table.generic_dims)
        with ir.InsertionPoint(op), op.location:
            op.results[0].replace_all_uses_with(values.value_of(size))
        op.erase()
    for op in find_ops(kernel, "affine.apply"):
        _expand_symbolic_map(op, table)
    for op in find_ops(kernel, "arith.constant"):
        value = op.attributes["value"]
        if not isinstance(value, ir.IntegerAttr) or str(value.type) == "i1":
            continue
        size = table.position(value.value)
        if isinstance(size, SizeExpr):
            result, loaded = op.results[0], values.value(size)
            if result.type != loaded.type:
                with ir.InsertionPoint.after(loaded.owner), op.location:
                    loaded = arith.index_cast(result.type, loaded)
            result.replace_all_uses_with(loaded)
            op.erase()
    with values.active():
        _flatten_accesses(kernel)
    for op in find_ops(kernel, "memref.load"):
        sizes = shape_of(op.operands[0])
        if not isinstance(op.results[0].type, ir.IndexType) and any(map(_may_be_zero, sizes)):
            MAY_BE_EMPTY.set(op, True)


def _expand_symbolic_map(op: Any, table: SizeTable) -> None:
    """Write an index map whose constants stand for sizes as arithmetic, which may load them.

    Fusion composes such maps for reads through reshapes: element (i, j) of `x.reshape(n, m)` is at
    `i * m + j`. Its results are operands of the same op: dims first, then symbols.
    """
    affine = op.attributes["map"].value
    operands = list(op.operands)

    def constants(expr: Any) -> list[int]:
        if isinstance(expr, ir.AffineConstantExpr):
            return [expr.value]
        is_leaf = isinstance(expr, ir.AffineDimExpr | ir.AffineSymbolExpr)
        return [] if is_leaf else [*constants(expr.lhs), *constants(expr.rhs)]

    def value(expr: Any) -> Index:
        if isinstance(expr, ir.AffineConstantExpr):
            return int(expr.value)
        if isinstance(expr, ir.AffineDimExpr):
            return operands[expr.position]
        if isinstance(expr, ir.AffineSymbolExpr):
            return operands[affine.n_dims + expr.position]
        first, second = value(expr.lhs), value(expr.rhs)
        if isinstance(expr, ir.AffineAddExpr):
            return add(first, second)
        if isinstance(expr, ir.AffineMulExpr):
            return mul(first, second)
        if isinstance(expr, ir.AffineFloorDivExpr):
            return binary("arith.divsi", sub(first, _remainder(first, second)), second)
        if isinstance(expr, ir.AffineModExpr):
            return _remainder(first, second)
        raise LoweringError(
            f"the index map {affine} with symbolic sizes", where=place_of(op.location)
        )

    [result] = affine.results
    if all(isinstance(table.position(abs(n)), int) for n in constants(result)):
        return
    with ir.InsertionPoint(op), op.location:
        op.results[0].replace_all_uses_with(index(value(result)))
    op.erase()


def _remainder(dividend: Index, divisor: Index) -> Index:
    """The remainder of a division that rounds down, by a positive divisor."""
    rest = binary("arith.remsi", dividend, divisor)
    is_negative = compare(arith.CmpIPredicate.slt, rest, 0)
    return arith.select(is_negative, index(add(rest, divisor)), rest)


def _may_be_zero(size: Size) -> bool:
    return isinstance(size, SizeExpr) and least_size(size) <= 0


def guard_empty_buffers(kernel: Any) -> None:
    """Let marked loads of a lowered kernel be 0 if their buffer has no elements.

    Ops such as `pad` load at a clamped position and select afterwards, and an empty buffer has no
    position. Called after the schedules, which match the bodies of ops without the guards.
    """
    for op in find_ops(kernel, "memref.load"):
        if not MAY_BE_EMPTY.has(op):
            continue
        MAY_BE_EMPTY.remove(op)
        size, type_ = prod(shape_of(op.operands[0])), op.results[0].type
        if not _may_be_zero(size):
            continue
        with ir.InsertionPoint(op), op.location:
            exists = compare(arith.CmpIPredicate.ne, size, 0)
            guarded = scf.IfOp(exists, [type_], has_else=True)
            op.results[0].replace_all_uses_with(guarded.results[0])
            with ir.InsertionPoint(guarded.then_block):
                scf.YieldOp([op.clone().results[0]])
            with ir.InsertionPoint(guarded.else_block):
                zero = ir.FloatAttr if isinstance(type_, ir.FloatType) else ir.IntegerAttr
                scf.YieldOp([arith.constant(type_, zero.get(type_, 0))])
        op.erase()


def computes_size(op: Any) -> bool:
    """Whether `op` computes a scalar from symbolic sizes alone: it runs once, before the tiles."""
    if active_table() is None:
        return False
    if op.name == "memref.load":
        return isinstance(op.operands[0].type.element_type, ir.IndexType)
    return op.name.startswith("arith.") and all(
        isinstance(v, ir.OpResult)
        and (v.owner.operation.name == "arith.constant" or computes_size(v.owner.operation))
        for v in op.operands
    )


def _flatten_accesses(kernel: Any) -> None:
    """Rewrite loads and stores of buffers with symbolic strides, which their types do not have.

    Ops at computed positions, such as gathers, access buffers of several dimensions. Structured ops
    are flat already.
    """
    flat: dict[Any, Any] = {}
    for op in find_ops(kernel, "memref.load", "memref.store", *_OTHER_ACCESSES):
        is_store = op.name == "memref.store"
        buffer, *indices = list(op.operands)[1 if is_store else 0 :]
        shape = shape_of(buffer)
        if all(isinstance(size, int) for size in shape[1:]):
            continue
        if op.name in _OTHER_ACCESSES:
            raise LoweringError(
                f"{op.name} of a buffer of shape ({', '.join(map(str, shape))})",
                where=place_of(op.location),
                hint="keep the sizes of its inner dimensions static",
            )
        root = buffer_root(buffer)
        if root not in flat:
            point = ir.InsertionPoint.at_block_begin(kernel.entry_block)
            if isinstance(root, ir.OpResult):
                point = ir.InsertionPoint.after(root.owner)
            with point, op.location:
                flat[root] = flatten(root)
        with ir.InsertionPoint(op), op.location:
            position: Index = 0
            for axis, at in enumerate(indices):
                position = add(position, mul(at, prod(shape[axis + 1 :])))
            if is_store:
                memref.store(op.operands[0], flat[root], [index(position)])
            else:
                op.results[0].replace_all_uses_with(memref.load(flat[root], [index(position)]))
        op.erase()


# --- expressions of a lowered kernel --------------------------------------------------------------


def symbolic_numbers(kernel: Any, name: str) -> list[Size]:
    """A list of `store_symbolic`, of a kernel of the program whose table is active."""
    table = active_table()
    assert table is not None
    return [parse_size(text.value, table.generic_dims) for text in SYMBOLIC.get(kernel)[name]]


def size_texts(sizes: Sequence[Size]) -> ir.ArrayAttr:
    """Sizes as the attribute that `symbolic_numbers` reads."""
    return ir.ArrayAttr.get([ir.StringAttr.get(str(size)) for size in sizes])


def moved_sizes(kernel: Any) -> Size:
    """Bytes of the buffer arguments of a kernel, without those of which it writes a slice."""
    total: Size = 0
    sliced = SLICED.find(kernel) or ()
    for i, argument in enumerate(kernel.entry_block.arguments):
        type_ = argument.type
        if i in sliced:
            continue
        if isinstance(type_, ir.MemRefType) and not isinstance(type_.element_type, ir.IndexType):
            total = total + prod(shape_of(argument)) * element_bytes(type_)
    return total
