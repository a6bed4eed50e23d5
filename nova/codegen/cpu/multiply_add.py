"""Sums of vectors of floats or integers, and `lhs * rhs + total`."""

from __future__ import annotations

from nova.core.targets import Target
from nova.ir.bindings import arith, ir


def multiply_add(target: Target, lhs: ir.Value, rhs: ir.Value, total: ir.Value) -> ir.Value:
    """A fused multiply-add; without FMA, and of integers, a product and a sum."""
    if _is_integer(total):
        return arith.addi(total, arith.muli(lhs, rhs))
    if target.has_fma:
        # In a third of the time of its Python class: microkernels have hundreds of them.
        return ir.Operation.create("vector.fma", [total.type], [lhs, rhs, total]).result
    return arith.addf(total, arith.mulf(lhs, rhs))


def add_values(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """The sum of two scalars or vectors of one type."""
    return arith.addi(lhs, rhs) if _is_integer(lhs) else arith.addf(lhs, rhs)


def _is_integer(value: ir.Value) -> bool:
    type_ = value.type
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    return isinstance(element, ir.IntegerType)
