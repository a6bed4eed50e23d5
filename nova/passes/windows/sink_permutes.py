"""`sink-permutes`: ops compute in the order of axes in which their operands are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from nova.core.dtypes import TensorType
from nova.core.records import record
from nova.ir.bindings import ir
from nova.ir.dialect import create_op, full_name, op_type
from nova.ir.types import nova_type
from nova.ir.walk import function_ops
from nova.ops import OPS
from nova.passes.base import Pass

Axes = tuple[int, ...]
Attrs = dict[str, Any]

_MOST_REPEATED = 4
"""Elementwise ops in a row that are computed again."""
_PER_AXIS = {"pad": ("low", "high"), "slice": ("starts", "stops", "steps"), "expand": ("shape",)}
"""Ops with one operand, and their attributes that have a number for each axis."""


@record
class SinkPermutes(Pass):
    """Move permutations after the ops that read them: `f(permute(x))` is `permute(f(x))`.

    f is elementwise, a reduction, a reshape that keeps the permuted axes separate, or moves parts
    of axes (pad, slice, expand, join, windows). Its other operands must be permuted in the same
    way, or have at most one axis longer than 1, or repeat elements that are in order either way.
    Two permutations that meet are one, or none: with channels last in memory, a chain of ops
    between convolutions computes with channels last, and reads and writes memory in order. Sizes
    must be static.
    """

    name: ClassVar[str] = "sink-permutes"

    def run(self, module: ir.Module) -> None:
        for op in function_ops(module, "nova."):
            if len(op.results) != 1 or not _is_static(op):
                continue
            with ir.InsertionPoint(op), op.location:
                value = _sunk(op)
            if value is not None:
                op.results[0].replace_all_uses_with(value)

    def concerns(self, text: str) -> bool:
        return full_name("permute") in text


def _sunk(op: Any) -> Any | None:
    """The value of an op as a permutation of an op on unpermuted operands; None if it stays."""
    name = op.name.removeprefix("nova.")
    row = OPS.get(name)
    if row is None or not op.operands:
        return None
    if name == "permute":
        return _merged(op)
    axes = next((found for v in op.operands if (found := _permutation(v)) is not None), None)
    if axes is None:
        return None
    _, attrs, _ = op_type(row, op)
    if "elementwise" in row.tags:
        return _elementwise(op, row, attrs, axes)
    if "reduce" in row.tags:
        return _reduction(op, row, attrs, axes)
    if name in _PER_AXIS:
        moved = {key: _unpermuted(attrs[key], axes) for key in _PER_AXIS[name]}
        same_rank = len(nova_type(op.results[0].type).shape) == len(axes)
        return (
            _permuted(_create(row, [_source(op)], {**attrs, **moved}), axes) if same_rank else None
        )
    if name == "flip":
        moved = {"axes": tuple(sorted(axes[a] for a in attrs["axes"]))}
        return _permuted(_create(row, [_source(op)], {**attrs, **moved}), axes)
    if name == "join":
        if any(_permutation(v) != axes for v in op.operands):
            return None
        sources = [v.owner.operation.operands[0] for v in op.operands]
        return _permuted(_create(row, sources, {**attrs, "axis": axes[attrs["axis"]]}), axes)
    if name == "reshape":
        return _reshape(op, axes)
    if name == "windows":
        return _windows(op, len(attrs["kernel"]), axes)
    return None


# --- ops ------------------------------------------------------------------------------------------


def _merged(op: Any) -> Any | None:
    """One permutation for two, and none if it only moves axes of size 1."""
    axes = tuple(op_type(OPS["permute"], op)[1]["axes"])
    source = op.operands[0]
    inner = _permutation(source)
    if inner is not None:
        return _permuted(_source(op), tuple(inner[a] for a in axes))
    return (
        None
        if _keeps_order(nova_type(source.type).shape, axes) is False
        else _permuted(source, axes)
    )


def _elementwise(op: Any, row: Any, attrs: Attrs, axes: Axes) -> Any | None:
    rank = len(axes)
    if len(nova_type(op.results[0].type).shape) != rank:
        return None
    operands = []
    for value in op.operands:
        if _permutation(value) == axes:
            operands.append(value.owner.operation.operands[0])
            continue
        repeated = _repeated(value, axes, _MOST_REPEATED)
        if repeated is None:
            return None
        operands.append(repeated)
    return _permuted(_create(row, operands, attrs), axes)


def _repeated(value: Any, axes: Axes, depth: int) -> Any | None:
    """A value in the order of axes before a permutation, if it is in order either way.

    It has at most one axis longer than 1, or repeats such a value, or is computed from such values
    by a few elementwise ops, which are then computed again.
    """
    rank, shape = len(axes), nova_type(value.type).shape
    if sum(n != 1 for n in shape) <= 1:
        full = (1,) * (rank - len(shape)) + tuple(shape)
        return _reshaped(value, _unpermuted(full, axes)) if shape else value
    op = value.owner.operation if isinstance(value, ir.OpResult) else None
    row = OPS.get(op.name.removeprefix("nova.")) if op is not None else None
    if op is None or row is None or not depth or len(shape) != rank:
        return None
    if row.name == "expand":
        source = op.operands[0]
        old = nova_type(source.type).shape
        inverse = tuple(axes.index(i) for i in range(rank))
        if len(old) != rank or not _keeps_order(old, inverse):
            return None
        moved = _reshaped(source, _unpermuted(old, axes))
        return _create(row, [moved], {"shape": _unpermuted(shape, axes)})
    if "elementwise" not in row.tags:
        return None
    operands = [_repeated(operand, axes, depth - 1) for operand in op.operands]
    if any(operand is None for operand in operands):
        return None
    return _create(row, operands, op_type(row, op)[1])


def _reduction(op: Any, row: Any, attrs: Attrs, axes: Axes) -> Any | None:
    axis = attrs["axis"]
    if axis is None:
        return None
    reduced = (axis,) if isinstance(axis, int) else tuple(axis)
    moved = sorted(axes[a] for a in reduced)
    value = _create(
        row, [_source(op)], {**attrs, "axis": moved[0] if isinstance(axis, int) else tuple(moved)}
    )
    if attrs["keepdims"]:
        return _permuted(value, axes)
    left = [axes[a] for a in range(len(axes)) if a not in reduced]
    return _permuted(value, tuple(sorted(left).index(a) for a in left))


def _reshape(op: Any, axes: Axes) -> Any | None:
    """A reshape that divides axes, or merges axes that are next to each other in memory."""
    before = nova_type(op.operands[0].type).shape
    after = nova_type(op.results[0].type).shape
    groups = _groups(before, after)
    if groups is None:
        return None
    order = sorted(
        range(len(groups)), key=lambda i: min((axes[a] for a in groups[i][0]), default=0)
    )
    for old, _ in groups:
        places = [axes[a] for a in old]
        if places != list(range(min(places), min(places) + len(places))):
            return None
    shape = [after[a] for i in order for a in groups[i][1]]
    starts, count = {}, 0
    for i in order:
        starts[i] = count
        count += len(groups[i][1])
    result = tuple(starts[i] + k for i in range(len(groups)) for k in range(len(groups[i][1])))
    return _permuted(_reshaped(_source(op), shape), result)


def _groups(
    before: Sequence[int], after: Sequence[int]
) -> list[tuple[list[int], list[int]]] | None:
    """The axes of two shapes in groups of the same size, each with at least one old axis."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before):
        old, new = [i], list[int]()
        i += 1
        if j < len(after):
            new.append(j)
            j += 1
        left, right = before[old[0]], prod(after[a] for a in new)
        while left != right:
            if left < right and i < len(before):
                old.append(i)
                left *= before[i]
                i += 1
            elif right < left and j < len(after):
                new.append(j)
                right *= after[j]
                j += 1
            else:
                return None
        groups.append((old, new))
    if j < len(after):
        if any(after[a] != 1 for a in range(j, len(after))):
            return None
        groups[-1][1].extend(range(j, len(after)))
    return groups


def _windows(op: Any, rank: int, axes: Axes) -> Any | None:
    """Windows of images with channels last, with positions first and channels last."""
    lead = len(axes) - rank
    if axes.index(len(axes) - 1) >= lead:
        return None  # positions are innermost in memory
    taps = list(range(lead, lead + rank))
    order = sorted(range(len(axes)), key=lambda i: axes[i])
    inside = [a if a < lead else a + rank for a in order]
    layout = (*inside[:-1], *taps, inside[-1])
    users = [use.owner.operation for use in op.results[0].uses]
    if any(user.name == full_name("permute") for user in users):
        return None  # it has a layout already
    copy = op.clone()
    inner = _create(OPS["permute"], [copy.operation.results[0]], {"axes": layout})
    return _permuted(inner, tuple(layout.index(a) for a in range(len(layout))))


# --- values ---------------------------------------------------------------------------------------


def _permutation(value: Any) -> Axes | None:
    """The axes of the permutation that defines `value`."""
    if not isinstance(value, ir.OpResult) or value.owner.operation.name != full_name("permute"):
        return None
    return tuple(op_type(OPS["permute"], value.owner.operation)[1]["axes"])


def _source(op: Any) -> Any:
    return op.operands[0].owner.operation.operands[0]


def _unpermuted(numbers: Sequence[Any], axes: Axes) -> tuple[Any, ...]:
    """Numbers of the axes of a permutation, in the order of the axes of its source."""
    return tuple(numbers[axes.index(i)] for i in range(len(axes)))


def _keeps_order(shape: Sequence[int], axes: Axes) -> bool:
    """Whether a permutation only moves axes of size 1: the elements stay where they are."""
    long_axes = [a for a in axes if shape[a] != 1]
    return long_axes == sorted(long_axes)


def _permuted(value: Any, axes: Axes) -> Any:
    shape = nova_type(value.type).shape
    if axes == tuple(range(len(axes))):
        return value
    if _keeps_order(shape, axes):
        return _reshaped(value, tuple(shape[a] for a in axes))
    return _create(OPS["permute"], [value], {"axes": axes})


def _reshaped(value: Any, shape: Sequence[int]) -> Any:
    if tuple(nova_type(value.type).shape) == tuple(shape):
        return value
    return _create(OPS["reshape"], [value], {"shape": tuple(shape)})


def _create(row: Any, operands: list[Any], attrs: Attrs) -> Any:
    types = tuple(nova_type(v.type) for v in operands)
    attrs = row.canon(types, attrs) if row.canon else attrs
    result: TensorType = row.infer(types, attrs)
    return create_op(row, operands, result, attrs)


def _is_static(op: Any) -> bool:
    values = [*op.operands, *op.results]
    return all(isinstance(n, int) for v in values for n in nova_type(v.type).shape)
