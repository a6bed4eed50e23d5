"""Index arithmetic: `int`s for static values, `index` values for dynamic ones.

Every function emits at the insertion point, and folds what is static: `add(i, 0)` is `i`, and
`mul(2, 3)` is 6.
"""

from __future__ import annotations

from typing import TypeAlias

from nova.ir.bindings import arith, ir

Index: TypeAlias = "ir.Value | int"
"""A static index (int) or a dynamic one (an `index` value)."""


def index(value: Index) -> ir.Value:
    """`value` as an `index` SSA value."""
    if isinstance(value, int):
        return arith.constant(ir.IndexType.get(), value)
    return value


def add(left: Index, right: Index) -> Index:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    if isinstance(left, int):
        left, right = right, left
    return left if right == 0 else arith.addi(index(left), index(right))


def sub(left: Index, right: Index) -> Index:
    if isinstance(right, int):
        return add(left, -right)
    return arith.subi(index(left), index(right))


def mul(left: Index, right: Index) -> Index:
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    if isinstance(left, int):
        left, right = right, left
    if isinstance(right, int) and right in (0, 1):
        return left if right else 0
    return arith.muli(index(left), index(right))


def divide(left: Index, right: int) -> Index:
    """The quotient of nonnegative numbers, rounded down."""
    if isinstance(left, int):
        return left // right
    return left if right == 1 else arith.divui(left, index(right))


def divide_up(left: Index, right: int) -> Index:
    """The quotient of nonnegative numbers, rounded up."""
    return divide(add(left, right - 1), right)


def modulo(left: Index, right: int) -> Index:
    """The remainder of nonnegative numbers."""
    if isinstance(left, int):
        return left % right
    return 0 if right == 1 else arith.remui(left, index(right))


def exclusive_or(left: Index, right: Index) -> Index:
    if isinstance(left, int) and isinstance(right, int):
        return left ^ right
    return left if right == 0 else arith.xori(index(left), index(right))


def minimum(left: Index, right: Index) -> Index:
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right)
    return arith.minsi(index(left), index(right))


def compare(predicate: arith.CmpIPredicate, left: Index, right: Index) -> ir.Value:
    return arith.cmpi(predicate, index(left), index(right))


def offset_by(base: Index, *offsets: Index) -> Index:
    """A position plus offsets; static ones last, where addressing modes absorb them."""
    static = sum(o for o in offsets if isinstance(o, int))
    for offset in offsets:
        if not isinstance(offset, int):
            base = add(base, offset)
    return add(base, static)
