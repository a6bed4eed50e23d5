"""Recognizes paddings: ops that read a tensor at clamped positions and select a constant elsewhere.

In: a `linalg.generic` on tensors, such as `convert-nova-to-linalg` writes for `nova.pad`. Out: the
source, the widths before it and the value around it. The positions are computed for every index of
an axis, so that any arithmetic that comes to the same numbers is matched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.linalg.generic import GenericOp

_LONGEST = 1 << 20
"""The longest axis whose positions are computed."""

_COMPARE: tuple[Callable[[Any, Any], Any], ...] = (
    *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
)
"""By the number of `arith.cmpi`'s predicate; the unsigned ones are not matched."""

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
}


@record
class Pad:
    """`result[low + i] = source[i]`, and `value` at all other positions."""

    source: Any
    low: tuple[int, ...]
    value: Any


@record
class _Along:
    """An integer or a condition as a function of one loop; of none where `loop` is None."""

    loop: int | None
    numbers: Any


def match_pad(op: Any) -> Pad | None:
    """The padding that a `linalg.generic` computes, or None."""
    generic = GenericOp(op)
    rank = len(generic.iterators)
    if generic.num_inputs or generic.num_outputs != 1 or generic.out_dims != tuple(range(rank)):
        return None
    if "reduction" in generic.iterators or max(generic.sizes, default=0) > _LONGEST:
        return None
    ops = [o.operation for o in generic.block.operations]
    inner = {*generic.block.arguments, *(r for o in ops for r in o.results)}
    select = _defining(ops[-1].operands[0])
    if select is None or select.name != "arith.select":
        return None
    condition, element, value = select.operands
    extract = _defining(element)
    if extract is None or extract.name != "tensor.extract" or value in inner:
        return None
    source, *positions = extract.operands
    if len(positions) != rank or source in inner:
        return None
    reader = _Reader(generic.sizes)
    terms = reader.conjuncts(condition)
    if terms is None:
        return None
    low = []
    for axis, position in enumerate(positions):
        start = _start(axis, generic.sizes[axis], source.type.shape[axis], position, terms, reader)
        if start is None:
            return None
        low.append(start)
    known = all(t.loop is not None or bool(np.all(t.numbers)) for t in terms)
    return Pad(source, tuple(low), value) if known else None


def _start(
    axis: int, extent: int, size: int, position: Any, terms: list[_Along], reader: _Reader
) -> int | None:
    """The width before the source along an axis, if it is a padding along it."""
    at = reader.read(position)
    if at is None or at.loop not in (None, axis):
        return None
    inside = np.ones(extent, bool)
    for term in terms:
        if term.loop == axis:
            inside &= term.numbers
    if np.count_nonzero(inside) != size:
        return None
    low = int(np.argmax(inside))
    indices = np.broadcast_to(at.numbers, extent)
    is_run = bool(inside[low : low + size].all())
    return low if is_run and np.array_equal(indices[inside], np.arange(size)) else None


class _Reader:
    """Evaluates the index arithmetic of a body over whole loops."""

    def __init__(self, sizes: tuple[int, ...]):
        self.sizes = sizes

    def conjuncts(self, value: Any) -> list[_Along] | None:
        """The conditions whose conjunction is `value`, each along one loop."""
        op = _defining(value)
        if op is not None and op.name == "arith.andi":
            parts = [self.conjuncts(operand) for operand in op.operands]
            return None if None in parts else [t for part in parts if part for t in part]
        term = self.read(value)
        return None if term is None else [term]

    def read(self, value: Any) -> _Along | None:
        """An integer as a function of at most one loop."""
        op = _defining(value)
        if op is None:
            return None
        if op.name == "arith.constant":
            attribute = op.attributes["value"]
            if not isinstance(attribute, ir.IntegerAttr | ir.BoolAttr):
                return None
            return _Along(None, np.asarray(int(attribute.value)))
        if op.name == "linalg.index":
            loop = int(op.attributes["dim"].value)
            return _Along(loop, np.arange(self.sizes[loop]))
        if op.name in ("arith.index_cast", "arith.extsi"):
            return self.read(op.operands[0])
        compute = _ARITHMETIC.get(op.name)
        if op.name == "arith.cmpi":
            predicate = int(op.attributes["predicate"].value)
            compute = _COMPARE[predicate] if predicate < len(_COMPARE) else None
        return None if compute is None else self._combined(compute, op)

    def _combined(self, compute: Callable[[Any, Any], Any], op: Any) -> _Along | None:
        a, b = (self.read(v) for v in op.operands)
        if a is None or b is None or (None not in (a.loop, b.loop) and a.loop != b.loop):
            return None
        loop = b.loop if a.loop is None else a.loop
        return _Along(loop, compute(a.numbers, b.numbers))


def _defining(value: Any) -> Any | None:
    return value.owner.operation if isinstance(value, ir.OpResult) else None
