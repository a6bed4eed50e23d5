"""StableHLO ops with sizes as operands, rewritten as their static forms.

In: a module and its `Inference`. Out: the same program with representatives
(`nova/ir/symbolic/size_table.py`) as sizes in types and attributes. Sizes that are data become
`nova.size`; the bounds of loops become constants that stand for sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nova.core.dtypes import TensorType, i32, i64
from nova.core.sizes import Size, SizeExpr, known_equal
from nova.frontends.symbolic.assertions import ASSERTION
from nova.frontends.symbolic.infer import Inference
from nova.frontends.symbolic.predicates import is_size
from nova.frontends.symbolic.stablehlo_regions import DIM_NAME, DYNAMIC_WINDOW, window_sizes
from nova.frontends.symbolic.stablehlo_shapes import sliced_sizes, starts_inside
from nova.frontends.symbolic.static_types import set_static_types
from nova.ir.bindings import ir, stablehlo
from nova.ir.clone import clone_into
from nova.ir.linalg.builder import LinalgBuilder
from nova.ir.symbolic.size_table import SizeTable
from nova.ir.walk import defining_op, every_op

_PURE = ("stablehlo.", "chlo.")


class StablehloRewriter:
    """Rewrites one function; called inside of the context of its module."""

    def __init__(self, main: Any, inference: Inference, table: SizeTable):
        self.main, self.inference, self.table = main, inference, table

    def run(self) -> None:
        ops = every_op(self.main, outer_first=True)
        set_static_types(ops, self.inference, self.table)
        for op in ops:
            if op.name == "stablehlo.while":
                self._bound_loop(op)
        for op in ops:
            rewrite = _REWRITES.get(op.name)
            if rewrite is not None:
                self._replace(op, rewrite)
        self._drop_calls()
        self._make_sizes_data()

    # --- types and numbers ----------------------------------------------------------------------

    def numbers(self, sizes: Sequence[Size]) -> list[int]:
        """Representatives of sizes."""
        return [self.table.representative(size) for size in sizes]

    def _replace(self, op: Any, rewrite: Callable[[StablehloRewriter, Any], Any]) -> None:
        with ir.InsertionPoint(op), op.location:
            value = rewrite(self, op)
        if value is None:
            return
        old = op.results[0]
        self.inference.shapes[value] = self.inference.shape(old)
        if old in self.inference.elements:
            self.inference.elements[value] = self.inference.elements[old]
        old.replace_all_uses_with(value)
        op.erase()

    # --- loops ----------------------------------------------------------------------------------

    def _bound_loop(self, op: Any) -> None:
        """Make the size that a loop counts to a constant, which `raise-counted-loops` reads."""
        for compare in op.regions[0].blocks[0].operations:
            compare = compare.operation
            if compare.name != "stablehlo.compare":
                continue
            for k, value in enumerate(compare.operands):
                size = self._scalar(value)
                if isinstance(size, SizeExpr):
                    with ir.InsertionPoint(compare), compare.location:
                        number = self.table.representative(size)
                        compare.operands[k] = _constant(number, value.type)

    def _scalar(self, value: Any) -> Size | None:
        elements = self.inference.find(value)
        if elements is None or elements.ndim or not is_size(elements.item()):
            return None
        size: Size = elements.item()
        return size

    # --- sizes as data --------------------------------------------------------------------------

    def _drop_calls(self) -> None:
        for op in every_op(self.main):
            is_call = op.name == "stablehlo.custom_call"
            if is_call and op.attributes["call_target_name"].value in (ASSERTION, DIM_NAME):
                op.erase()

    def _make_sizes_data(self) -> None:
        """Replace known integers that other ops read by values, and erase unused computations."""
        for op in reversed(every_op(self.main, outer_first=True)[1:]):
            if not op.name.startswith(_PURE) or not op.results or op.regions:
                continue
            self._replace_known(op)
            if op.name != "stablehlo.custom_call" and not any(list(r.uses) for r in op.results):
                op.erase()

    def _replace_known(self, op: Any) -> None:
        elements = self.inference.find(op.results[0]) if len(op.results) == 1 else None
        if elements is None or not list(op.results[0].uses):
            return
        flat = list(elements.reshape(-1))
        if not all(map(is_size, flat)) or all(isinstance(n, int) for n in flat):
            return
        with ir.InsertionPoint(op), op.location:
            value = self._materialized(elements, op.results[0].type)
        op.results[0].replace_all_uses_with(value)

    def _materialized(self, elements: np.ndarray, type_: Any) -> Any:
        """A tensor of sizes, computed by the run."""
        element = type_.element_type
        dtype = i32 if element.width <= 32 else i64
        builder = LinalgBuilder()
        scalars = [
            builder.generic(TensorType((), dtype), [], lambda s, n=n: s.const(n, dtype))
            for n in elements.reshape(-1)
        ]
        if elements.ndim == 0:
            return _create("stablehlo.convert", type_, scalars)
        row = ir.RankedTensorType.get([1], scalars[0].type.element_type)
        rows = [_create("stablehlo.reshape", row, [scalar]) for scalar in scalars]
        flat = ir.RankedTensorType.get([len(rows)], row.element_type)
        joined = _create("stablehlo.concatenate", flat, rows, dimension=_i64(0))
        wide = ir.RankedTensorType.get(list(type_.shape), row.element_type)
        shaped = _create("stablehlo.reshape", wide, [joined])
        return _create("stablehlo.convert", type_, [shaped])


# --- builders -------------------------------------------------------------------------------------


def _create(name: str, type_: Any, operands: Sequence[Any], **attributes: Any) -> Any:
    return ir.Operation.create(name, [type_], list(operands), attributes).result


def _i64(number: int) -> Any:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


def _array(numbers: Sequence[int]) -> Any:
    return ir.DenseI64ArrayAttr.get(list(numbers))


def _constant(number: int, type_: Any) -> Any:
    value = ir.DenseElementsAttr.get_splat(type_, ir.IntegerAttr.get(type_.element_type, number))
    return _create("stablehlo.constant", type_, [], value=value)


# --- ops ------------------------------------------------------------------------------------------


def _reshape(r: StablehloRewriter, op: Any) -> Any:
    return _create("stablehlo.reshape", op.results[0].type, [op.operands[0]])


def _broadcast(r: StablehloRewriter, op: Any) -> Any:
    axes = op.attributes["broadcast_dimensions"]
    operands = [op.operands[0]]
    return _create(
        "stablehlo.broadcast_in_dim", op.results[0].type, operands, broadcast_dimensions=axes
    )


def _iota(r: StablehloRewriter, op: Any) -> Any:
    axis = op.attributes["iota_dimension"]
    return _create("stablehlo.iota", op.results[0].type, [], iota_dimension=axis)


def _pad(r: StablehloRewriter, op: Any) -> Any:
    low, high, between = (
        r.numbers(r.inference.sizes(value, "the padding")) for value in list(op.operands)[2:]
    )
    return _create(
        "stablehlo.pad",
        op.results[0].type,
        list(op.operands)[:2],
        edge_padding_low=_array(low),
        edge_padding_high=_array(high),
        interior_padding=_array(between),
    )


def _real_dynamic_slice(r: StablehloRewriter, op: Any) -> Any:
    operand, starts, limits, strides = op.operands
    counts = sliced_sizes(r.inference, op)
    if counts is not None:
        scalars = [_start(r, starts, k, operand, counts) for k in range(len(counts))]
        return _dynamic_slice(r, op.results[0].type, operand, scalars, counts)
    bounds = [r.inference.sizes(v, "a bound") for v in (starts, limits, strides)]
    return _static_slice(r, op.results[0].type, operand, *bounds)


def _static_slice(
    r: StablehloRewriter, type_: Any, operand: Any, starts: Any, limits: Any, strides: Any
) -> Any:
    return _create(
        "stablehlo.slice",
        type_,
        [operand],
        start_indices=_array(r.numbers(starts)),
        limit_indices=_array(r.numbers(limits)),
        strides=_array(r.numbers(strides)),
    )


def _dynamic_slice(
    r: StablehloRewriter, type_: Any, operand: Any, starts: Sequence[Any], counts: Sequence[Size]
) -> Any:
    sizes = _array(r.numbers(counts))
    return _create("stablehlo.dynamic_slice", type_, [operand, *starts], slice_sizes=sizes)


def _start(r: StablehloRewriter, starts: Any, k: int, operand: Any, counts: Sequence[Size]) -> Any:
    """The scalar at `k` of a vector of start indices, without the clamp that a slice does."""
    scalar = ir.RankedTensorType.get([], starts.type.element_type)
    elements = r.inference.find(starts)
    if elements is not None and type(elements[k]) is int:
        return _constant(elements[k], scalar)
    clamp = defining_op(starts, "stablehlo.clamp")
    if clamp is not None:
        low, value, high = clamp.operands
        lows, highs = r.inference.find(low), r.inference.find(high)
        size = r.inference.shape(operand)[k]
        if (
            lows is not None
            and highs is not None
            and lows[k] == 0
            and is_size(highs[k])
            and known_equal(highs[k], size - counts[k])
        ):
            return _start(r, value, k, operand, counts)
    joined = defining_op(starts, "stablehlo.concatenate")
    if joined is not None and all(list(v.type.shape) == [1] for v in joined.operands):
        starts, k = joined.operands[k], 0
    for name in ("stablehlo.reshape", "stablehlo.broadcast_in_dim"):
        source = defining_op(starts, name)
        if source is not None and list(source.operands[0].type.shape) == []:
            return source.operands[0]
    row = ir.RankedTensorType.get([1], starts.type.element_type)
    element = _create(
        "stablehlo.slice",
        row,
        [starts],
        start_indices=_array([k]),
        limit_indices=_array([k + 1]),
        strides=_array([1]),
    )
    return _create("stablehlo.reshape", scalar, [element])


def _gather(r: StablehloRewriter, op: Any) -> Any:
    """A gather; one at a single position is a slice."""
    operand, indices, sizes = op.operands
    counts = r.inference.sizes(sizes, "the slice sizes")
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    if len(indices.type.shape) == 1 and numbers.index_vector_dim == 0:
        return _sliced(r, op, numbers, counts)
    attributes = {
        "dimension_numbers": op.attributes["dimension_numbers"],
        "slice_sizes": _array(r.numbers(counts)),
    }
    if "indices_are_sorted" in op.attributes:
        attributes["indices_are_sorted"] = op.attributes["indices_are_sorted"]
    return _create("stablehlo.gather", op.results[0].type, [operand, indices], **attributes)


def _sliced(r: StablehloRewriter, op: Any, numbers: Any, counts: Sequence[Size]) -> Any:
    operand, indices, _ = op.operands
    element = operand.type.element_type
    type_ = ir.RankedTensorType.get(r.numbers(counts), element)
    axes = list(numbers.start_index_map)
    elements = r.inference.find(indices)
    starts = None
    if elements is not None and all(map(is_size, elements)):
        starts = starts_inside(r.inference, op, counts)
    if starts is not None:
        limits = [a + n for a, n in zip(starts, counts, strict=True)]
        value = _static_slice(r, type_, operand, starts, limits, [1] * len(counts))
    else:
        scalar = ir.RankedTensorType.get([], indices.type.element_type)
        positions = [_constant(0, scalar) for _ in counts]
        ordered = [counts[axis] for axis in axes]
        for k, axis in enumerate(axes):
            positions[axis] = _start(r, indices, k, operand, ordered)
        value = _dynamic_slice(r, type_, operand, positions, counts)
    if value.type == op.results[0].type:
        return value
    return _create("stablehlo.reshape", op.results[0].type, [value])


def _custom_call(r: StablehloRewriter, op: Any) -> Any:
    """jax's window with sizes as operands, as an op with its combiner inside."""
    if op.attributes["call_target_name"].value != DYNAMIC_WINDOW or len(op.results) != 1:
        return None
    window, strides, base, dilations, pads = map(r.numbers, window_sizes(r.inference, op))
    pairs = np.array(pads, np.int64).reshape(-1, 2)
    new = ir.Operation.create(
        "stablehlo.reduce_window",
        [op.results[0].type],
        list(op.operands)[:2],
        {
            "window_dimensions": _array(window),
            "window_strides": _array(strides),
            "base_dilations": _array(base),
            "window_dilations": _array(dilations),
            "padding": ir.DenseElementsAttr.get(pairs),
        },
        regions=1,
    )
    module = r.main.operation.parent
    name = op.attributes["called_computations"][0].value
    combiner = next(f for f in module.regions[0].blocks[0].operations if f.name.value == name)
    types = [argument.type for argument in combiner.arguments]
    block = new.regions[0].blocks.append(*types, arg_locs=[op.location] * len(types))
    mapping = dict(zip(combiner.arguments, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for inner in combiner.entry_block.operations:
            inner = inner.operation
            if inner.name == "func.return":
                returned = [mapping.get(v, v) for v in inner.operands]
                ir.Operation.create("stablehlo.return", [], returned)
            else:
                clone_into(inner, mapping)
    return new.result


_REWRITES: dict[str, Callable[[StablehloRewriter, Any], Any]] = {
    "stablehlo.custom_call": _custom_call,
    "stablehlo.dynamic_reshape": _reshape,
    "stablehlo.dynamic_broadcast_in_dim": _broadcast,
    "stablehlo.dynamic_iota": _iota,
    "stablehlo.dynamic_pad": _pad,
    "stablehlo.real_dynamic_slice": _real_dynamic_slice,
    "stablehlo.dynamic_gather": _gather,
}
