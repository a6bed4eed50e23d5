"""Shape rules of StableHLO ops with `?` sizes, one row for each op.

A rule returns the shapes of the results, and equates the sizes that the op needs to be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nova.core.sizes import Shape, Size, at_most, ceildiv, is_static
from nova.errors import SymbolicImportError
from nova.frontends.symbolic.infer import Inference, Rule, Shapes
from nova.frontends.symbolic.predicates import is_size
from nova.frontends.symbolic.stablehlo_elements import objects
from nova.frontends.symbolic.stablehlo_regions import infer_branches, infer_call, infer_while
from nova.ir.bindings import ir, stablehlo

_ELEMENTWISE = (
    *("abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "compare", "convert", "cosine"),
    *("count_leading_zeros", "divide", "exponential", "exponential_minus_one", "floor"),
    *("is_finite", "log", "log_plus_one", "logistic", "maximum", "minimum", "multiply", "negate"),
    *("not", "or", "popcnt", "power", "reduce_precision", "remainder", "reverse"),
    *("round_nearest_afz", "round_nearest_even", "rsqrt", "select", "shift_left"),
    *("shift_right_arithmetic", "shift_right_logical", "sign", "sine", "sqrt", "subtract", "tan"),
    *("tanh", "xor"),
)
_CHLO = (
    *("acos", "acosh", "asin", "asin_acos_kernel", "asinh", "atan", "atanh", "bessel_i1e"),
    *("conj", "cosh", "digamma", "erf", "erf_inv", "erfc", "is_inf", "is_neg_inf", "is_pos_inf"),
    *("lgamma", "next_after", "polygamma", "sinh", "square", "tan", "zeta"),
)


def _integers(op: Any, name: str) -> list[int]:
    return [int(n) for n in op.attributes[name]]


def _elementwise(i: Inference, op: Any) -> Shapes:
    """Operands of one shape; scalars of `select` and `clamp` next to them."""
    rank = len(op.results[0].type.shape)
    return [i.same(op, [v for v in op.operands if len(i.shape(v)) == rank])]


def _each(i: Inference, op: Any) -> Shapes:
    return [i.shape(value) for value in op.operands]


def _bitcast(i: Inference, op: Any) -> Shapes:
    widths = [t.type.element_type.width for t in (op.operands[0], op.results[0])]
    shape = i.shape(op.operands[0])
    if widths[0] > widths[1]:
        return [(*shape, widths[0] // widths[1])]
    return [shape if widths[0] == widths[1] else shape[:-1]]


# --- shapes that are operands ---------------------------------------------------------------------


def _dimension_size(i: Inference, op: Any) -> Shapes:
    size = i.shape(op.operands[0])[op.attributes["dimension"].value]
    i.elements[op.results[0]] = objects([size], ())
    return [()]


def _dynamic_reshape(i: Inference, op: Any) -> Shapes:
    shape = i.sizes(op.operands[1], "the shape of stablehlo.dynamic_reshape")
    i.equate(prod(i.shape(op.operands[0])), prod(shape), op)
    return [shape]


def _reshape(i: Inference, op: Any) -> Shapes:
    """The result of a static reshape; one `?` of its type is subject the others leave."""
    unknown = ir.ShapedType.get_dynamic_size()
    shape: list[Size] = list(op.results[0].type.shape)
    count = prod(i.shape(op.operands[0]))
    if unknown in shape:
        axis = shape.index(unknown)
        others = prod(n for k, n in enumerate(shape) if k != axis)
        if unknown in shape[axis + 1 :] or others == 0:
            raise SymbolicImportError("stablehlo.reshape to a shape with several unknown sizes")
        shape[axis] = count // others
    i.equate(count, prod(shape), op)
    return [shape]


def _dynamic_iota(i: Inference, op: Any) -> Shapes:
    return [i.sizes(op.operands[0], "the shape of stablehlo.dynamic_iota")]


def _dynamic_broadcast(i: Inference, op: Any) -> Shapes:
    shape = i.sizes(op.operands[1], "the shape of stablehlo.dynamic_broadcast_in_dim")
    return _broadcast(i, op, shape)


def _broadcast_in_dim(i: Inference, op: Any) -> Shapes:
    if not op.results[0].type.has_static_shape:
        raise SymbolicImportError("stablehlo.broadcast_in_dim to an unknown size")
    return _broadcast(i, op, list(op.results[0].type.shape))


def _broadcast(i: Inference, op: Any, shape: Sequence[Size]) -> Shapes:
    """A size of the operand is 1, or that of the result: a symbolic size never broadcasts."""
    axes = _integers(op, "broadcast_dimensions")
    for size, axis in zip(i.shape(op.operands[0]), axes, strict=True):
        if not (is_static(size) and size == 1):
            i.equate(size, shape[axis], op)
    return [shape]


def _real_dynamic_slice(i: Inference, op: Any) -> Shapes:
    operand, starts, limits, strides = op.operands
    steps = i.sizes(strides, "the stride of stablehlo.real_dynamic_slice")
    counts = sliced_sizes(i, op)
    if counts is not None:
        return [counts]
    lows = i.sizes(starts, "the start of stablehlo.real_dynamic_slice")
    highs = i.sizes(limits, "the end of stablehlo.real_dynamic_slice")
    for size, low, high in zip(i.shape(operand), lows, highs, strict=True):
        i.equations.at_least(low, 0, "the start of stablehlo.real_dynamic_slice")
        i.equations.at_least(size - high, 0, "the end of stablehlo.real_dynamic_slice")
    i.computed += [*lows, *highs]
    return [[ceildiv(h - low, s) for low, h, s in zip(lows, highs, steps, strict=True)]]


def sliced_sizes(i: Inference, op: Any) -> list[Size] | None:
    """The sizes of a slice at a position that a run computes: its end is the start plus sizes."""
    _, starts, limits, strides = op.operands
    if i.find(starts) is not None and not any(n is None for n in i.elements[starts].reshape(-1)):
        return None
    end = limits.owner.operation if isinstance(limits, ir.OpResult) else None
    if (
        end is None
        or end.name != "stablehlo.add"
        or any(n != 1 for n in i.sizes(strides, "the stride"))
    ):
        return None
    for start, counts in (end.operands, reversed(list(end.operands))):
        if start == starts and i.find(counts) is not None:
            return i.sizes(counts, "the sizes of stablehlo.real_dynamic_slice")
    return None


def _dynamic_pad(i: Inference, op: Any) -> Shapes:
    subject = "the padding of stablehlo.dynamic_pad"
    sizes = [i.sizes(value, subject) for value in list(op.operands)[2:]]
    i.computed += [n for part in sizes for n in part]
    return [_padded(i, op, *sizes)]


def _pad(i: Inference, op: Any) -> Shapes:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return [_padded(i, op, *(_integers(op, name) for name in names))]


def _padded(i: Inference, op: Any, low: Any, high: Any, interior: Any) -> list[Size]:
    sizes = []
    for size, a, b, between in zip(i.shape(op.operands[0]), low, high, interior, strict=True):
        if is_static(between) and between == 0:
            sizes.append(a + size + b)
            continue
        i.equations.at_least(size, 1, "an axis of a pad with gaps")
        sizes.append(a + size + b + (size - 1) * between)
    return sizes


# --- shapes from attributes -----------------------------------------------------------------------


def _transpose(i: Inference, op: Any) -> Shapes:
    shape = i.shape(op.operands[0])
    return [[shape[axis] for axis in _integers(op, "permutation")]]


def _concatenate(i: Inference, op: Any) -> Shapes:
    axis = op.attributes["dimension"].value
    shapes = [i.shape(value) for value in op.operands]
    result = list(shapes[0])
    for shape in shapes[1:]:
        for k, size in enumerate(shape):
            if k == axis:
                i.computed.append(result[k])  # where the operand begins
                result[k] = result[k] + size
            else:
                i.equate(result[k], size, op)
    return [result]


def _slice(i: Inference, op: Any) -> Shapes:
    starts, limits, strides = (
        _integers(op, name) for name in ("start_indices", "limit_indices", "strides")
    )
    for size, limit in zip(i.shape(op.operands[0]), limits, strict=True):
        i.equations.at_least(size - limit, 0, "the end of stablehlo.slice")
    spans = zip(starts, limits, strides, strict=True)
    return [[max(0, -(-(limit - start) // stride)) for start, limit, stride in spans]]


def _dynamic_slice(i: Inference, op: Any) -> Shapes:
    sizes = _integers(op, "slice_sizes")
    clamped(i, op, i.shape(op.operands[0]), sizes)
    return [sizes]


def _dynamic_update_slice(i: Inference, op: Any) -> Shapes:
    clamped(i, op, i.shape(op.operands[0]), i.shape(op.operands[1]))
    return [i.shape(op.operands[0])]


def clamped(i: Inference, op: Any, shape: Shape, sizes: Sequence[Size]) -> None:
    """Note the last start of a slice, which its lowering computes, and that the slice fits."""
    for size, count in zip(shape, sizes, strict=True):
        i.equations.at_least(size - count, 0, f"the slice of {op.name}")
        i.computed.append(size - count)


def _dot_general(i: Inference, op: Any) -> Shapes:
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    lhs, rhs = (i.shape(value) for value in op.operands)
    batch = [list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions)]
    summed = [list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)]
    for left, right in (batch, summed):
        for a, b in zip(left, right, strict=True):
            i.equate(lhs[a], rhs[b], op)
    shape = [lhs[a] for a in batch[0]]
    for operand, b, s in ((lhs, batch[0], summed[0]), (rhs, batch[1], summed[1])):
        shape += [n for axis, n in enumerate(operand) if axis not in (*b, *s)]
    return [shape]


def _dot(i: Inference, op: Any) -> Shapes:
    lhs, rhs = (i.shape(value) for value in op.operands)
    i.equate(lhs[-1], rhs[0], op)
    return [(*lhs[:-1], *rhs[1:])]


def _reduce(i: Inference, op: Any) -> Shapes:
    operands = list(op.operands)[: len(op.results)]
    shape, axes = i.same(op, operands), _integers(op, "dimensions")
    i.block(op.regions[0].blocks[0])
    return [[n for k, n in enumerate(shape) if k not in axes]] * len(op.results)


def _window(i: Inference, op: Any) -> Shapes:
    operands = list(op.operands)[: len(op.results)]
    shape = i.same(op, operands)
    rank = len(shape)
    window = _integers(op, "window_dimensions")
    strides, base, dilations = (
        _integers(op, name) if name in op.attributes else [1] * rank
        for name in ("window_strides", "base_dilations", "window_dilations")
    )
    pads = _padding(op, rank)
    if any(n != 1 for n in base):
        raise SymbolicImportError("stablehlo.reduce_window with gaps between elements")
    i.block(op.regions[0].blocks[0])
    return [
        [_positions(i, shape[k], window[k], strides[k], dilations[k], pads[k]) for k in range(rank)]
    ] * len(op.results)


def _padding(op: Any, rank: int) -> list[list[int]]:
    if "padding" not in op.attributes:
        return [[0, 0]] * rank
    return np.array(op.attributes["padding"]).reshape(rank, 2).tolist()


def _positions(
    i: Inference, size: Size, window: int, stride: int, dilation: int, pads: Sequence[int]
) -> Size:
    """The number of windows along an axis."""
    span = size + pads[0] + pads[1] - (dilation * (window - 1) + 1)
    i.equations.at_least(span, 0, "the padded axis of a window")
    return span // stride + 1


def _convolution(i: Inference, op: Any) -> Shapes:
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    x, w = (i.shape(value) for value in op.operands)
    rank = len(numbers.input_spatial_dimensions)
    strides, gaps, dilations = (
        _integers(op, name) if name in op.attributes else [1] * rank
        for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    if any(n != 1 for n in gaps) or not all(map(is_static, w)):
        raise SymbolicImportError("stablehlo.convolution with a symbolic window")
    if op.attributes["batch_group_count"].value != 1:
        raise SymbolicImportError("stablehlo.convolution with groups of the batch")
    pads = _padding(op, rank)
    shape: list[Size] = [0] * (rank + 2)
    shape[numbers.output_batch_dimension] = x[numbers.input_batch_dimension]
    shape[numbers.output_feature_dimension] = w[numbers.kernel_output_feature_dimension]
    groups = op.attributes["feature_group_count"].value
    features = w[numbers.kernel_input_feature_dimension] * groups
    i.equate(x[numbers.input_feature_dimension], features, op)
    for k in range(rank):
        size = x[numbers.input_spatial_dimensions[k]]
        window = w[numbers.kernel_spatial_dimensions[k]]
        assert isinstance(window, int)
        positions = _positions(i, size, window, strides[k], dilations[k], pads[k])
        shape[numbers.output_spatial_dimensions[k]] = positions
    return [shape]


# --- gather and scatter ---------------------------------------------------------------------------


def _gather(i: Inference, op: Any) -> Shapes:
    return [_gathered(i, op, _integers(op, "slice_sizes"))]


def _dynamic_gather(i: Inference, op: Any) -> Shapes:
    sizes = i.sizes(op.operands[2], "the slice sizes of stablehlo.dynamic_gather")
    elements = i.find(op.operands[1])
    if elements is not None and elements.ndim == 1 and all(map(is_size, elements)):
        starts = starts_inside(i, op, sizes)
        if starts is not None:
            i.computed += [n for a, b in zip(starts, sizes, strict=True) for n in (a, a + b)]
    return [_gathered(i, op, sizes)]


def _gathered(i: Inference, op: Any, sizes: Sequence[Size]) -> list[Size]:
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    shape, indices = i.shape(op.operands[0]), i.shape(op.operands[1])
    clamped(i, op, shape, sizes)
    left_out = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    batch = [n for k, n in enumerate(indices) if k != numbers.index_vector_dim]
    offsets = iter([n for k, n in enumerate(sizes) if k not in left_out])
    rank = len(op.results[0].type.shape)
    rows = iter(batch)
    for a, b in zip(
        numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
    ):
        i.equate(shape[a], indices[b], op)
    return [next(offsets) if k in numbers.offset_dims else next(rows) for k in range(rank)]


def starts_inside(i: Inference, op: Any, counts: Sequence[Size]) -> list[Size] | None:
    """The start of a gather's one slice, if its sizes say that it is inside of the operand."""
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    starts: list[Size] = [0] * len(counts)
    for axis, size in zip(numbers.start_index_map, i.elements[op.operands[1]], strict=True):
        starts[axis] = size
    for size, start, count in zip(i.shape(op.operands[0]), starts, counts, strict=True):
        if not (at_most(0, start) and at_most(start + count, size)):
            return None
    return starts


def _scatter(i: Inference, op: Any) -> Shapes:
    count = len(op.results)
    operands, indices = list(op.operands)[:count], op.operands[count]
    updates = i.same(op, list(op.operands)[count + 1 :])
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    rows = [n for k, n in enumerate(i.shape(indices)) if k != numbers.index_vector_dim]
    scattered = [n for k, n in enumerate(updates) if k not in numbers.update_window_dims]
    for a, b in zip(rows, scattered, strict=True):
        i.equate(a, b, op)
    i.block(op.regions[0].blocks[0])
    return [i.same(op, operands)] * count


def _top_k(i: Inference, op: Any) -> Shapes:
    shape = i.shape(op.operands[0])
    k = op.attributes["k"].value
    i.equations.at_least(shape[-1], k, "the last axis of chlo.top_k")
    return [(*shape[:-1], k)] * 2


SHAPES: dict[str, Rule] = {
    "func.return": lambda i, op: None,
    "stablehlo.return": lambda i, op: None,
    **{f"stablehlo.{name}": _elementwise for name in _ELEMENTWISE},
    **{f"chlo.{name}": _elementwise for name in _CHLO},
    "stablehlo.bitcast_convert": _bitcast,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.case": infer_branches,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.convolution": _convolution,
    "stablehlo.custom_call": infer_call,
    "stablehlo.dot": _dot,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dynamic_broadcast_in_dim": _dynamic_broadcast,
    "stablehlo.dynamic_gather": _dynamic_gather,
    "stablehlo.dynamic_iota": _dynamic_iota,
    "stablehlo.dynamic_pad": _dynamic_pad,
    "stablehlo.dynamic_reshape": _dynamic_reshape,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": _gather,
    "stablehlo.get_dimension_size": _dimension_size,
    "stablehlo.if": infer_branches,
    "stablehlo.optimization_barrier": _each,
    "stablehlo.pad": _pad,
    "stablehlo.real_dynamic_slice": _real_dynamic_slice,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _window,
    "stablehlo.reshape": _reshape,
    "stablehlo.scatter": _scatter,
    "stablehlo.slice": _slice,
    "stablehlo.sort": _each,
    "stablehlo.transpose": _transpose,
    "stablehlo.while": infer_while,
    "chlo.top_k": _top_k,
}
