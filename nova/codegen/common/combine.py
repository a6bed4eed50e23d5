"""Reductions: matches the combining op of a body, and combines partial results by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nova.codegen.common.loop_nest import LoopNest
from nova.ir.bindings import arith, ir

COMBINERS = {
    "arith.addf": 0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": float("-inf"),
    "arith.minimumf": float("inf"),
    "arith.addi": 0,
    "arith.muli": 1,
    "arith.andi": -1,
    "arith.ori": 0,
    "arith.xori": 0,
}
"""The combining ops of reductions, and the identity of each."""

# Sums of reductions may be contracted; the sign of a zero extreme is unspecified, as in numpy.
_RELAXED = {
    "arith.addf": "contract",
    "arith.mulf": "contract",
    "arith.maximumf": "nsz",
    "arith.minimumf": "nsz",
}

Combine = Callable[[Any, Any], Any]
"""Emits the combination of two partial results."""


def find_combiners(nest: LoopNest) -> tuple[str, ...] | None:
    """The op that combines each output with a value, if each is yielded by a single such op."""
    block = nest.generic.block
    operations = [op.operation for op in block.operations]
    names = []
    for k, value in enumerate(operations[-1].operands):
        argument = block.arguments[nest.generic.num_inputs + k]
        if not isinstance(value, ir.OpResult):
            return None
        op = value.owner.operation
        uses = [use.owner.operation for use in argument.uses]
        if op.name not in COMBINERS or uses != [op] or len(list(value.uses)) != 1:
            return None
        names.append(op.name)
    return tuple(names)


def fast_math_flags(name: str) -> Any:
    """The fast-math flags of the op `name` of a reduction."""
    return ir.Attribute.parse(f"#arith.fastmath<{_RELAXED[name]}>")


def is_fast_math(name: str) -> bool:
    return name in _RELAXED


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
