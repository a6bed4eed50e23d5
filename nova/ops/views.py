"""Sugar over the movement rows: transpose, squeeze, stack, split, indexing with [], ...

These create no node of their own: each is a function over tensors that builds reshapes, permutes,
slices and concats. `movement.py` registers them with its rows.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np

from nova.core.dtypes import dtype, i64, promote_all
from nova.core.sizes import (
    Size,
    SizeExpr,
    is_static,
    known_equal,
    known_less,
    same_shape,
    size_max,
    size_min,
)
from nova.core.sizes.slices import slice_count, slice_indices
from nova.errors import (
    ArgumentCountError,
    ArgumentTypeError,
    AttributeValueError,
    AxisError,
    DTypeError,
    ShapeError,
    SymbolicSizeError,
)
from nova.ops.rules import (
    clamped_index,
    int_tuple,
    int_value,
    is_unit,
    is_zero,
    resolve_axes,
    resolve_axis,
    size_tuple,
)
from nova.ops.table import Op


def _transpose(F: Any, x: Any, axes: Any = None, axis2: int | None = None, *more: int) -> Any:
    if more:
        return F.permute(x, (axes, axis2, *more))
    if axis2 is not None:
        return _swapaxes(F, x, axes, axis2)
    return F.permute(x, tuple(range(len(x.shape)))[::-1] if axes is None else axes)


def _swapaxes(F: Any, x: Any, axis1: int, axis2: int) -> Any:
    rank = len(x.shape)
    order = list(range(rank))
    first, second = resolve_axis(axis1, rank), resolve_axis(axis2, rank)
    order[first], order[second] = second, first
    return F.permute(x, order)


def _squeeze(F: Any, x: Any, axis: Any = None) -> Any:
    shape = x.shape
    if axis is None:
        axes = tuple(i for i, n in enumerate(shape) if is_unit(n))
    else:
        axes = resolve_axes(axis, len(shape))
    for i in axes:
        if not is_unit(shape[i]):
            raise ShapeError(f"squeeze: axis {i} of {shape} has size {shape[i]}, not 1")
    return F.reshape(x, tuple(n for i, n in enumerate(shape) if i not in axes))


def _unsqueeze(F: Any, x: Any, axis: Any) -> Any:
    axes = int_tuple(axis, "axis")
    axes = resolve_axes(axes, len(x.shape) + len(axes))
    sizes = iter(x.shape)
    rank = len(x.shape) + len(axes)
    return F.reshape(x, tuple(1 if i in axes else next(sizes) for i in range(rank)))


def _flatten(F: Any, x: Any, start_axis: int = 0, end_axis: int = -1) -> Any:
    if not x.shape:
        return F.reshape(x, (1,))
    first, last = (resolve_axis(a, len(x.shape)) for a in (start_axis, end_axis))
    if last < first:
        raise AxisError(f"flatten: axis {start_axis} comes after axis {end_axis}")
    middle = prod(x.shape[first : last + 1])
    return F.reshape(x, (*x.shape[:first], middle, *x.shape[last + 1 :]))


# Each element of a join tests every operand; more tensors than this are joined in rounds.
_JOINED = 4


def _concat(F: Any, *tensors: Any, axis: int = 0) -> Any:
    operands, axis = _tensor_list("concat", tensors, axis)
    # Cast all to one dtype first: the rounds must not promote step by step.
    types = [dtype(t.dtype) for t in operands]
    common = promote_all(types)
    operands = [
        t if type_ is common else F.cast(t, dtype=common)
        for t, type_ in zip(operands, types, strict=True)
    ]
    while len(operands) > _JOINED:
        groups = [operands[i : i + _JOINED] for i in range(0, len(operands), _JOINED)]
        operands = [F.join(*group, axis=axis) for group in groups]
    return F.join(*operands, axis=axis)


def _stack(F: Any, *tensors: Any, axis: int = 0) -> Any:
    operands, axis = _tensor_list("stack", tensors, axis)
    for t in operands[1:]:
        if not same_shape(t.shape, operands[0].shape):
            raise ShapeError(f"stack: shapes {operands[0].shape} and {t.shape} differ")
    axis = resolve_axis(axis, len(operands[0].shape) + 1)
    return _concat(F, [_unsqueeze(F, t, axis) for t in operands], axis=axis)


def _tensor_list(name: str, values: tuple[Any, ...], axis: int) -> tuple[list[Any], int]:
    """The tensors and the axis of f([a, b]), f([a, b], axis) and f(a, b, axis=axis)."""
    if values and isinstance(values[0], tuple | list):
        if len(values) > 2:
            raise ArgumentCountError(f"{name}: takes a list of tensors and an axis")
        tensors, axis = values[0], values[1] if len(values) == 2 else axis
    else:
        tensors = values
    if not tensors:
        raise ArgumentCountError(f"{name}: needs a tensor or more")
    for t in tensors:
        if not hasattr(t, "dtype"):
            raise ArgumentTypeError(
                f"{name}: a {type(t).__name__} is not a tensor",
                hint="wrap data with nova.tensor(...)",
            )
    return list(tensors), axis


def _split(F: Any, x: Any, sections: Any, axis: int = 0) -> tuple[Any, ...]:
    axis = resolve_axis(axis, len(x.shape))
    n = x.shape[axis]
    if isinstance(sections, tuple | list):
        sizes = size_tuple(sections, "split sizes")
    else:
        count = int_value(sections, "sections")
        check_divides("split", n, count, axis)
        if count < 1 or not is_zero(n % count):
            raise ShapeError(
                f"split: axis {axis} of size {n} has no {count} equal sections",
                hint="give the sizes: split(x, [2, 3], axis=0)",
            )
        sizes = (n // count,) * count
    if not known_equal(sum(sizes), n) or any(size < 0 for size in sizes):
        raise ShapeError(f"split: sizes {sizes} do not add up to {n}")
    ends = list(accumulate(sizes, initial=0))
    return tuple(_narrow(F, x, axis, b, e) for b, e in pairwise(ends))


def check_divides(name: str, n: Size, count: int, axis: int) -> None:
    """SymbolicSizeError if a number of parts may or may not divide an axis of symbolic size."""
    if count > 1 and not is_static(n) and not is_static(n % count):
        raise SymbolicSizeError(
            f"{name}: whether axis {axis} of size {n} has {count} equal parts is known at run time",
            hint=f"give the sizes, as in split(x, [{n // count}, {n - n // count}], axis={axis}), "
            f"or let the axis be a multiple: nova.dim(...) * {count}",
        )


def _narrow(F: Any, x: Any, axis: int, start: int, stop: int) -> Any:
    starts, stops = [0] * len(x.shape), list(x.shape)
    starts[axis], stops[axis] = start, stop
    return F.slice(x, starts, stops)


def _roll(F: Any, x: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return F.reshape(_roll_axis(F, F.reshape(x, (-1,)), shift, 0), x.shape)
    shifts, axes = int_tuple(shift, "roll: shift"), int_tuple(axis, "roll: axis")
    if len(shifts) != len(axes):
        raise AttributeValueError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for each, along in zip(shifts, axes, strict=True):
        x = _roll_axis(F, x, each, along)
    return x


def _roll_axis(F: Any, x: Any, shift: int, axis: int) -> Any:
    axis = resolve_axis(axis, len(x.shape))
    n = x.shape[axis]
    shift = int_value(shift, "shift")
    if is_zero(n):
        return x
    if is_static(n):
        cut = -shift % n
    elif known_less(abs(shift), n):
        cut = n - shift if shift > 0 else -shift
    else:
        raise SymbolicSizeError(
            f"roll: by {shift} along axis {axis} of {x.shape}, which may have fewer elements",
            hint=f"raise the min of the dim above {abs(shift)}",
        )
    if is_zero(cut):
        return x
    return F.concat([_narrow(F, x, axis, cut, n), _narrow(F, x, axis, 0, cut)], axis=axis)


def _diagonal(F: Any, x: Any, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    rank = len(x.shape)
    if rank < 2:
        raise ShapeError(f"diagonal: {x.shape} has no two axes")
    first, second = resolve_axis(axis1, rank), resolve_axis(axis2, rank)
    if first == second:
        raise AxisError(f"diagonal: axes {axis1} and {axis2} are the same")
    if (first, second) != (rank - 2, rank - 1):
        order = [i for i in range(rank) if i not in (first, second)]
        x = F.permute(x, (*order, first, second))
    *lead, rows, columns = x.shape
    length = size_min(rows, columns - offset) if offset >= 0 else size_min(rows + offset, columns)
    length = size_max(length, 0)
    # Consecutive elements of a diagonal have a stride of columns + 1 in the flattened matrix.
    start = offset if offset >= 0 else -offset * columns
    if not is_static(columns):
        raise SymbolicSizeError(
            f"diagonal: the last axis of {x.shape} has a size that is known at run time",
            hint="keep the last axis static; the one before it may be symbolic",
        )
    stop = start if is_zero(length) else start + (length - 1) * (columns + 1) + 1
    flat = F.reshape(x, (*lead, rows * columns))
    zeros = [0] * len(lead)
    return F.slice(flat, [*zeros, start], [*lead, stop], [1] * len(lead) + [columns + 1])


# --- indexing with [] -----------------------------------------------------------------------------


def _getitem(F: Any, x: Any, key: Any) -> Any:
    """Basic indexing is one slice and one reshape; integer tensors then take along their axes."""
    items = _with_ellipsis(key if isinstance(key, tuple) else (key,), len(x.shape))
    _check_advanced(items)
    several = _positions_of_several(items)
    starts, stops, steps = [], [], []
    shape: list[Any] = []
    gathers: list[tuple[int, Any]] = []
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        n = x.shape[axis]
        if isinstance(item, slice):
            start, stop, step = _slice_indices(item, n)
            count = slice_count(start, stop, step)
            shape.append(count)
            # -1 is "before element 0" here, but "the last" to the slice row.
            start, stop, step = (0, 0, 1) if is_zero(count) else (start, stop, step)
            stop = -n - 1 if known_equal(stop, -1) else stop
        elif _is_int(item):
            start, step = _in_range(item, n, axis), 1
            stop = start + 1
            if several:  # an axis of one element
                gathers.append((len(shape), 0))
                shape.append(1)
        else:
            start, stop, step = 0, n, 1
            gathers.append((len(shape), item))
            shape.append(n)
        starts.append(start)
        stops.append(stop)
        steps.append(step)
        axis += 1
    result = x
    is_full = all(map(is_zero, starts)) and same_shape(stops, x.shape)
    if not is_full or any(step != 1 for step in steps):
        result = F.slice(result, starts, stops, steps)
    if not same_shape(shape, result.shape):
        result = F.reshape(result, shape)
    if several:
        return _take_several(F, result, gathers, _lead_of_several(items, several))
    for at, item in reversed(gathers):  # earlier axes keep their numbers
        result = F.take(result, item, axis=at)
    return result


def _lead_of_several(items: list[Any], positions: list[int]) -> int:
    """How many axes come before those of the indices: none, if there are slices between them.

    To numpy an int is one of these indices, torch selects with it first. Where that makes a
    difference, it is an error.
    """
    tensors = [i for i in positions if not _is_number(items[i])]

    def lead(indices: list[int]) -> int:
        between = range(indices[0], indices[-1])
        is_run = all(i in positions for i in between)
        return sum(i not in positions for i in range(indices[0])) if is_run else 0

    if lead(positions) != lead(tensors):
        raise AttributeValueError(
            "index: a slice is between a number and a tensor of indices",
            hint="numpy and torch order the axes of the result differently: write x[i][...]",
        )
    return lead(positions)


def _is_number(item: Any) -> bool:
    return _is_int(item) or getattr(item, "shape", None) == ()


def _take_several(F: Any, x: Any, gathers: list[tuple[int, Any]], lead: int) -> Any:
    """The elements at integer tensors for several axes, which broadcast: axes from `lead` on."""
    axes = [at for at, _ in gathers]
    others = [i for i in range(len(x.shape)) if i not in axes]
    sizes = [x.shape[a] for a in axes]
    rows = F.reshape(F.permute(x, (*axes, *others)), (prod(sizes), *(x.shape[i] for i in others)))
    flat = None
    for (_, item), n in zip(gathers, sizes, strict=True):
        index = F.detach(item)
        if is_static(n) and n > 0:
            index = F.clamp_index(index, axis_size=n)
        else:
            index = clamped_index(F, F.cast(index, dtype=i64), n)
        flat = index if flat is None else flat * n + index
    assert flat is not None
    picked = F.take(rows, flat, axis=0)
    width = len(flat.shape)
    if not lead:
        return picked
    order = (*range(width, width + lead), *range(width), *range(width + lead, len(picked.shape)))
    return F.permute(picked, order)


def _with_ellipsis(items: tuple[Any, ...], rank: int) -> list[Any]:
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise AxisError("index: more than one ellipsis")
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > rank:
        raise AxisError(f"index: {used} indices for a tensor of rank {rank}")
    at = dots[0] if dots else len(items)
    fill = [slice(None)] * (rank - used)
    return [*items[:at], *fill, *items[at + 1 :]]


def _check_advanced(items: list[Any]) -> None:
    tensors = [i for i, item in enumerate(items) if not _is_basic(item)]
    for i in tensors:
        element_type = getattr(items[i], "dtype", None)
        if element_type is None and not isinstance(items[i], list):
            raise DTypeError(f"index: {items[i]!r} is not an index")
        if element_type is not None and not dtype(element_type).is_integer:
            raise DTypeError(
                f"index: a {dtype(element_type)} tensor is not an index",
                hint="shapes are static, so a mask cannot select: use where(mask, x, y)",
            )


def _positions_of_several(items: list[Any]) -> list[int]:
    """Where the indices are that broadcast with each other: none, unless one take cannot do it."""
    # A 0-d index known only at run time selects from its axis, at any position.
    tensors = [i for i, item in enumerate(items) if not _is_basic(item) and not _is_number(item)]
    positions = [i for i, item in enumerate(items) if i in tensors or _is_number(item)]
    is_run = not positions or positions == list(range(positions[0], positions[-1] + 1))
    return positions if len(tensors) > 1 or (tensors and not is_run) else []


def _is_int(item: Any) -> bool:
    is_int = isinstance(item, int | np.integer) and not isinstance(item, bool | np.bool_)
    return is_int or isinstance(item, SizeExpr)


def _is_basic(item: Any) -> bool:
    return item is None or isinstance(item, slice) or _is_int(item)


def _slice_indices(item: slice, n: int) -> tuple[int, int, int]:
    for bound in (item.start, item.stop, item.step):
        if bound is not None and not _is_int(bound):
            raise AttributeValueError(
                f"index: slice bounds are ints or None, not {bound!r}",
                hint="shapes are static: a traced number selects with x[i] or take, not a slice",
            )
    if item.step == 0:
        raise AttributeValueError("index: a step of 0")
    return slice_indices(item, n)


def _in_range(index: Any, n: Any, axis: int) -> Any:
    if is_static(index) and is_static(n):
        index = int(index)
    is_negative = known_less(index, 0)
    if known_less(index, -n) or known_less(n - 1, index):
        raise AxisError(f"index: {index} is out of range for axis {axis} of size {n}")
    position = index + n if is_negative else index
    if not (known_less(-1, position) and known_less(position, n)):
        raise SymbolicSizeError(
            f"index: whether {index} is in range for axis {axis} of size {n} depends on sizes "
            "that are known at run time",
            hint=f"raise the min of the dims until {index} is in range for all of them",
        )
    return position


ROWS: tuple[Op, ...] = (
    Op(
        "transpose",
        "The axes in the order of `axes`, reversed by default; with two ints these two exchanged. "
        "Three ints or more are `axes`, as in numpy's method.",
        build=_transpose,
        methods=("transpose",),
    ),
    Op("swapaxes", "Two axes exchanged.", build=_swapaxes, methods=("swapaxes",)),
    Op(
        "squeeze",
        "Without the axes of size 1 (all, or the given ones).",
        build=_squeeze,
        methods=("squeeze",),
    ),
    Op(
        "unsqueeze",
        "With new axes of size 1 at the given places of the result.",
        build=_unsqueeze,
        methods=("unsqueeze",),
    ),
    Op(
        "flatten",
        "The axes from start_axis to end_axis joined into one.",
        build=_flatten,
        methods=("flatten",),
    ),
    Op(
        "concat",
        "Tensors joined along an existing axis: concat([a, b], axis=0).",
        operands=("*tensors",),
        build=_concat,
    ),
    Op(
        "stack",
        "Tensors of one shape joined along a new axis.",
        operands=("*tensors",),
        build=_stack,
    ),
    Op(
        "split",
        "A tuple of pieces along an axis: an int is the number of equal pieces, a list their "
        "sizes.",
        build=_split,
        methods=("split",),
    ),
    Op(
        "roll",
        "The elements moved by `shift` along an axis (or several; None: of the flattened tensor), "
        "those that fall off coming in again.",
        build=_roll,
        methods=("roll",),
    ),
    Op(
        "diagonal",
        "A diagonal of two axes, the last ones by default, `offset` above the main one.",
        build=_diagonal,
        methods=("diagonal",),
    ),
    Op(
        "getitem",
        "x[key] with ints, slices, None, Ellipsis and integer tensors: any number of 0-d ones "
        "(such as Python ints given to a jitted function), at most one other. Tensors that are out "
        "of range are clamped to the ends of the axis; negative ones count from its end.",
        build=_getitem,
    ),
)
