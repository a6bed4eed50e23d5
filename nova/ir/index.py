"""Index arithmetic: `int`s for static values, `index` values for dynamic ones.

Every function emits at the insertion point, and folds what is static: `add(i, 0)` is `i`, and
`mul(2, 3)` is 6. A symbolic size is folded with other sizes, and loaded where it meets a value.
"""

from __future__ import annotations

from typing import TypeAlias

from nova.core.sizes import SizeExpr
from nova.ir.bindings import arith, ir
from nova.ir.symbolic.size_values import size_value

Index: TypeAlias = "ir.Value | int | SizeExpr"
"""A static index (int), a symbolic size, or a dynamic index (an `index` value)."""


def index(value: Index) -> ir.Value:
    """`value` as an `index` SSA value."""
    if isinstance(value, int):
        type_ = ir.IndexType.get()
        constant = {"value": ir.IntegerAttr.get(type_, value)}
        return ir.Operation.create("arith.constant", [type_], attributes=constant).result
    return size_value(value) if isinstance(value, SizeExpr) else value


def binary(name: str, lhs: Index, rhs: Index) -> ir.Value:
    """An op of two indices, in a third of the time of its Python class, which infers the type."""
    first = index(lhs)
    return ir.Operation.create(name, [first.type], [first, index(rhs)]).result


def is_folded(value: Index) -> bool:
    """Whether a value is not an SSA value: a number or a symbolic size."""
    return isinstance(value, int | SizeExpr)


def add(lhs: Index, rhs: Index) -> Index:
    if is_folded(lhs) and is_folded(rhs):
        return lhs + rhs
    if is_folded(lhs):
        lhs, rhs = rhs, lhs
    return lhs if isinstance(rhs, int) and rhs == 0 else binary("arith.addi", lhs, rhs)


def sub(lhs: Index, rhs: Index) -> Index:
    if isinstance(rhs, int) or (is_folded(lhs) and is_folded(rhs)):
        return add(lhs, -rhs)
    return binary("arith.subi", lhs, rhs)


def mul(lhs: Index, rhs: Index) -> Index:
    if is_folded(lhs) and is_folded(rhs):
        return lhs * rhs
    if is_folded(lhs):
        lhs, rhs = rhs, lhs
    if isinstance(rhs, int) and rhs in (0, 1):
        return lhs if rhs else 0
    return binary("arith.muli", lhs, rhs)


def divide(lhs: Index, rhs: int | SizeExpr) -> Index:
    """The quotient of nonnegative numbers, rounded down."""
    if is_folded(lhs):
        return lhs // rhs
    return lhs if _is_unit(rhs) else binary("arith.divui", lhs, rhs)


def divide_up(lhs: Index, rhs: int | SizeExpr) -> Index:
    """The quotient of nonnegative numbers, rounded up."""
    return divide(add(lhs, rhs - 1), rhs)


def modulo(lhs: Index, rhs: int | SizeExpr) -> Index:
    """The remainder of nonnegative numbers."""
    if is_folded(lhs):
        return lhs % rhs
    return 0 if _is_unit(rhs) else binary("arith.remui", lhs, rhs)


def _is_unit(size: int | SizeExpr) -> bool:
    return isinstance(size, int) and size == 1


def exclusive_or(lhs: Index, rhs: Index) -> Index:
    if isinstance(lhs, int) and isinstance(rhs, int):
        return lhs ^ rhs
    return lhs if rhs == 0 else binary("arith.xori", lhs, rhs)


def minimum(lhs: Index, rhs: Index) -> Index:
    if isinstance(lhs, int) and isinstance(rhs, int):
        return min(lhs, rhs)
    return binary("arith.minsi", lhs, rhs)


def compare(predicate: arith.CmpIPredicate, lhs: Index, rhs: Index) -> ir.Value:
    return arith.cmpi(predicate, index(lhs), index(rhs))


def offset_by(base: Index, *offsets: Index) -> Index:
    """A position plus offsets; static ones last, where addressing modes absorb them."""
    static = sum(o for o in offsets if isinstance(o, int))
    for offset in offsets:
        if not isinstance(offset, int):
            base = add(base, offset)
    return add(base, static)
