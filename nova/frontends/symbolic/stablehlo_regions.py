"""Shape rules of StableHLO's loops, branches and calls of other code.

A loop keeps the shapes of its carried values. jax calls functions to assert facts about sizes, and
for windows of symbolic size. Rows of the table in `stablehlo_shapes.py`.
"""

from __future__ import annotations

from typing import Any

from nova.core.sizes import Size
from nova.errors import SymbolicImportError
from nova.frontends.symbolic.assertions import ASSERTION, infer_assertion
from nova.frontends.symbolic.infer import Inference, Shapes
from nova.frontends.symbolic.predicates import is_size
from nova.ir.bindings import ir

DYNAMIC_WINDOW = "stablehlo.dynamic_reduce_window"
DIM_NAME = "nova.dim_name"
"""A call that names a size: the name is its backend_config."""
_SAME_SHAPE = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape")


def infer_while(i: Inference, op: Any) -> Shapes:
    """Carried values keep their shapes; those that the body passes on keep their elements."""
    condition, body = (region.blocks[0] for region in op.regions)
    returned = list(body.operations)[-1].operation.operands
    invariant = {k for k, a in enumerate(body.arguments) if returned[k] == a}
    for block in (condition, body):
        i.bind(block.arguments, op.operands, invariant)
        values = i.block(block)
        for value, initial in zip(values, op.operands, strict=block == body):
            if block == body:
                for a, b in zip(i.shape(value), i.shape(initial), strict=True):
                    i.equate(a, b, op)
    for compare in condition.operations:
        if compare.operation.name == "stablehlo.compare":
            for value in compare.operation.operands:
                elements = i.find(value)
                if elements is not None and elements.ndim == 0 and is_size(elements.item()):
                    i.computed.append(elements.item())
    for k in invariant:
        if op.operands[k] in i.elements:
            i.elements[op.results[k]] = i.elements[op.operands[k]]
    return [i.shape(value) for value in op.operands]


def infer_branches(i: Inference, op: Any) -> Shapes:
    """All branches return values of the same shapes."""
    results = [i.block(region.blocks[0]) for region in op.regions]
    return [i.same(op, values) for values in zip(*results, strict=True)]


def infer_call(i: Inference, op: Any) -> Shapes | None:
    """A custom call: an assertion, a name of a size, a window, or an annotation."""
    target = op.attributes["call_target_name"].value
    if target == DIM_NAME:
        elements = i.find(op.operands[0])
        size: Any = None if elements is None else elements.item()
        name = op.attributes["backend_config"].value
        if getattr(size, "symbol", None) is not None and name.isidentifier():
            i.names.setdefault(size.symbol.name, name)
        return None
    if target == ASSERTION:
        infer_assertion(i, op)
        return None
    if target == DYNAMIC_WINDOW:
        return _dynamic_window(i, op)
    if target in _SAME_SHAPE:
        return [i.shape(value) for value in op.operands]
    dynamic = [v for v in (*op.operands, *op.results) if not _is_static_type(v.type)]
    if dynamic:
        raise SymbolicImportError(f"stablehlo.custom_call @{target} with symbolic sizes")
    return None


def _is_static_type(type_: Any) -> bool:
    return not isinstance(type_, ir.RankedTensorType) or type_.has_static_shape


def window_sizes(i: Inference, op: Any) -> list[list[Size]]:
    """Window, strides, dilations and paddings of jax's window with sizes as operands."""
    subject = f"the window of {DYNAMIC_WINDOW}"
    return [i.sizes(value, subject) for value in list(op.operands)[2 * len(op.results) :]]


def _dynamic_window(i: Inference, op: Any) -> Shapes:
    """A window of symbolic size: a prefix scan, whose shape is that of its operand."""
    shape = i.same(op, list(op.operands)[: len(op.results)])
    window, strides, base, dilations, pads = window_sizes(i, op)
    if any(n != 1 for part in (strides, base, dilations) for n in part):
        raise SymbolicImportError("a window of symbolic size with strides or gaps")
    i.computed += [*window, *pads]
    sizes = []
    for axis, size in enumerate(shape):
        low, high = pads[2 * axis : 2 * axis + 2]
        sizes.append(size + low + high - window[axis] + 1)
    return [sizes] * len(op.results)
