"""Combines partial results of a reduction by the combining op of its body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nova.codegen.cpu.vector_body import fast_math_flags, is_fast_math
from nova.codegen.cpu.vectorize import COMBINERS
from nova.ir.bindings import arith, ir

Combine = Callable[[Any, Any], Any]
"""Emits the combination of two partial results."""


def combiner(name: str) -> Combine:
    """Emit the op called `name` on two values."""

    def combine(lhs: Any, rhs: Any) -> Any:
        attributes = {"fastmath": fast_math_flags(name)} if is_fast_math(name) else {}
        return ir.Operation.create(name, [lhs.type], [lhs, rhs], attributes).results[0]

    return combine


def identity(name: str, type_: Any) -> Any:
    """The identity of the op called `name`.

    `type_` is the type of a scalar or of a vector.
    """
    value = COMBINERS[name]
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    if isinstance(element, ir.IntegerType):
        attr: Any = ir.IntegerAttr.get(element, int(value))
    else:
        attr = ir.FloatAttr.get(element, float(value))
    if isinstance(type_, ir.VectorType):
        attr = ir.DenseElementsAttr.get_splat(type_, attr)
    return arith.ConstantOp(type_, attr).result


def reduce_tree(values: Sequence[Any], combine: Combine) -> Any:
    """Combine values pairwise, in a balanced tree."""
    level = list(values)
    while len(level) > 1:
        pairs = [combine(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(level) & ~1 :]
    return level[0]


def reduce_halves(values: Sequence[Any], combine: Combine) -> Any:
    """Combine the first half with the second half, until one value is left; a power of two."""
    level = list(values)
    while len(level) > 1:
        half = len(level) // 2
        level = [combine(level[i], level[half + i]) for i in range(half)]
    return level[0]
