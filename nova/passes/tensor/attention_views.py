"""Reads a tensor through the slices, reshapes and transposes that produced it.

`form-attention` calls `fold_views` for each operand. Input: a value of the nova dialect and the
loop of each of its axes. Output: the value to read instead, usually the matmul result of which
queries, keys and values are slices, and the indexing map of the access. An axis of the source that
several loops index (heads and features) is split by a reshape, which is free, so that every result
of the map is a loop or a constant.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from nova.core.dtypes import TensorType
from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.dialect import create_op
from nova.ir.op_attributes import from_attributes
from nova.ir.types import nova_type
from nova.ops import OPS


@record
class AffineIndex:
    """An index: the sum of loops times their strides, and an offset."""

    steps: tuple[tuple[int, int], ...]
    start: int = 0

    def __add__(self, rhs: AffineIndex) -> AffineIndex:
        return AffineIndex(self.steps + rhs.steps, self.start + rhs.start)

    def __mul__(self, factor: int) -> AffineIndex:
        return AffineIndex(tuple((d, s * factor) for d, s in self.steps), self.start * factor)


@record
class View:
    """`value` read at one index per axis."""

    value: Any
    indices: tuple[AffineIndex, ...]

    @property
    def type(self) -> TensorType:
        return nova_type(self.value.type)


def fold_views(
    value: Any,
    loops: Sequence[int | None],
    sizes: Sequence[int],
    kept_loops: Collection[int] = (),
) -> tuple[Any, Any]:
    """The value to read for `value`, whose axes are `loops` (None: always 0), and the map.

    Loops of `kept_loops` that `value` has stay in the map, also those of size 1.
    """
    required = {d for d in loops if d in kept_loops}
    view = View(
        value, tuple(AffineIndex(()) if d is None else AffineIndex(((d, 1),)) for d in loops)
    )
    best = view
    while (further := _step(view)) is not None:
        view = further
        split = _split(view, sizes)
        if split is not None and required <= {d for index in split[1] for d, _ in index.steps}:
            best = view
    split = _split(best, sizes)
    assert split is not None  # each axis of `value` itself is one loop
    shape, results = split
    map_ = ir.AffineMap.get(len(sizes), 0, [_expression(r) for r in results])
    return _reshaped(best.value, shape), map_


def _expression(index: AffineIndex) -> Any:
    if index.steps:
        return ir.AffineDimExpr.get(index.steps[0][0])
    return ir.AffineConstantExpr.get(index.start)


def _reshaped(value: Any, shape: tuple[int, ...]) -> Any:
    type_ = nova_type(value.type)
    if type_.shape == shape:
        return value
    return create_op(OPS["reshape"], [value], type_.with_shape(shape), {"shape": shape})


# --- through one op -------------------------------------------------------------------------------


def _step(view: View) -> View | None:
    """The same elements read from the operand of the view's producer; None at the end."""
    if not isinstance(view.value, ir.OpResult):
        return None
    op = view.value.owner.operation
    name = op.name.removeprefix("nova.")
    if name not in _RULES:
        return None
    attrs = from_attributes(OPS[name], op.attributes)
    source = nova_type(op.operands[0].type)
    indices = _RULES[name](view, source, attrs)
    return None if indices is None else replace(view, value=op.operands[0], indices=indices)


def _permute(view: View, source: TensorType, attrs: dict[str, Any]) -> tuple[AffineIndex, ...]:
    axes = attrs["axes"]
    return tuple(view.indices[axes.index(axis)] for axis in range(len(axes)))


def _slice(view: View, source: TensorType, attrs: dict[str, Any]) -> tuple[AffineIndex, ...] | None:
    steps = attrs["steps"] or (1,) * source.rank
    if any(step != 1 for step in steps):
        return None
    return tuple(
        index + AffineIndex((), start % size if start < 0 else start)
        for index, start, size in zip(view.indices, attrs["starts"], source.shape, strict=True)
    )


def _expand(view: View, source: TensorType, attrs: dict[str, Any]) -> tuple[AffineIndex, ...]:
    new = view.type.rank - source.rank
    return tuple(
        AffineIndex(()) if size == 1 else index
        for index, size in zip(view.indices[new:], source.shape, strict=True)
    )


def _reshape(
    view: View, source: TensorType, attrs: dict[str, Any]
) -> tuple[AffineIndex, ...] | None:
    """Axes that were split from one are summed; axes that were merged cannot be separated."""
    extents, indices = list(view.type.shape), list(view.indices)
    result: list[AffineIndex] = []
    for size in source.shape:
        if size == 1:
            result.append(AffineIndex(()))
            continue
        total, count = AffineIndex(()), 1
        while extents and count < size:
            count *= extents[0]
            total = total * extents.pop(0) + indices.pop(0)
        while extents and extents[0] == 1:  # its only index is 0
            extents.pop(0)
            indices.pop(0)
        if count != size:
            return None
        result.append(total)
    return None if prod(extents) != 1 else tuple(result)


_RULES = {"permute": _permute, "slice": _slice, "expand": _expand, "reshape": _reshape}


# --- as a map -------------------------------------------------------------------------------------


def _split(view: View, sizes: Sequence[int]) -> tuple[tuple[int, ...], list[AffineIndex]] | None:
    """The shape of the view's value in which each axis is one loop or a constant; else None."""
    shape: list[int] = []
    results: list[AffineIndex] = []
    for index, size in zip(view.indices, view.type.shape, strict=True):
        steps = sorted(index.steps, key=lambda s: -s[1])
        steps = [(d, s) for d, s in steps if sizes[d] > 1 or (s == 1 and size == 1)]
        span = 1
        for loop, step in reversed(steps):
            if step != span:
                return None
            span *= sizes[loop]
        if size % span or index.start % span or index.start >= max(size, 1):
            return None
        if size > span or not steps:
            shape.append(size // span)
            results.append(AffineIndex((), index.start // span))
        for loop, _ in steps:
            shape.append(sizes[loop])
            results.append(AffineIndex(((loop, 1),)))
    return tuple(shape), results
