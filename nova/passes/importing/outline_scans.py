"""`outline-scans`: cumulative reductions, which jax writes as windows, get a form of their own."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nova.core.records import record
from nova.ir.bindings import func, ir
from nova.ir.clone import clone_into
from nova.ir.mathlib.f8_formats import NARROW_TYPES
from nova.ir.walk import find_ops
from nova.passes.base import Pass

TARGET = "nova.scan"
_HALVES = NARROW_TYPES


@record
class OutlineScans(Pass):
    """Rewrite a `stablehlo.reduce_window` that is a prefix scan as a call of `nova.scan`.

    It has one window along one axis that grows with the position: as long as the axis, and padded
    by all but one element on one side. Its work would be quadratic. The combiner becomes a function
    `@scan_N`, which `stablehlo-legalize-to-linalg` lowers; `lower-scans` writes the loops. f16 and
    bf16 are scanned in f32 and rounded at the end.
    """

    name: ClassVar[str] = "outline-scans"
    only_with: ClassVar[tuple[str, ...]] = ("stablehlo.reduce_window",)

    def run(self, module: ir.Module) -> None:
        for number, op in enumerate(find_ops(module, "stablehlo.reduce_window")):
            scan = _match(op)
            if scan is not None:
                function = _outline(module, op, f"scan_{number}", _wide_type(op))
                with ir.InsertionPoint(op), op.location:
                    value = _call(op, function, *scan)
                op.results[0].replace_all_uses_with(value)
                op.erase()


def _match(op: Any) -> tuple[int, bool] | None:
    """The axis of a scan, and whether it runs from the end."""
    if len(op.results) != 1 or op.operands[0].type != op.results[0].type:
        return None
    if _captures(op.regions[0].blocks[0]):
        return None
    shape = list(op.operands[0].type.shape)
    window = list(op.attributes["window_dimensions"])
    steps = ("window_strides", "base_dilations", "window_dilations")
    if any(set(op.attributes[name]) - {1} for name in steps if name in op.attributes):
        return None
    axes = [axis for axis, size in enumerate(window) if size != 1]
    if len(axes) != 1 or window[axes[0]] != shape[axes[0]] or "padding" not in op.attributes:
        return None
    [axis] = axes
    padding = np.array(op.attributes["padding"]).reshape(-1, 2).tolist()
    low, high = padding.pop(axis)
    if any(width for pair in padding for width in pair):
        return None
    if sorted((low, high)) != [0, shape[axis] - 1]:
        return None
    return axis, low == 0


def _captures(block: Any) -> bool:
    """Whether a combiner reads values from outside, or has regions."""
    local = set(block.arguments)
    for op in block.operations:
        if len(op.operation.regions) or any(value not in local for value in op.operation.operands):
            return True
        local.update(op.operation.results)
    return False


def _wide_type(op: Any) -> Any:
    """f32 for a plain sum or product of halves; else the type of the elements."""
    element = op.operands[0].type.element_type
    names = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
    is_plain = names[0] in ("stablehlo.add", "stablehlo.multiply") and len(names) == 2
    return ir.F32Type.get() if isinstance(element, _HALVES) and is_plain else element


def _outline(module: ir.Module, op: Any, name: str, element: Any) -> str:
    block = op.regions[0].blocks[0]
    type_ = ir.RankedTensorType.get([], element)
    with ir.InsertionPoint(module.body), op.location:
        function = func.FuncOp(name, ir.FunctionType.get([type_] * 2, [type_]))
        function.attributes["sym_visibility"] = ir.StringAttr.get("private")
        entry = function.add_entry_block()
        mapping = dict(zip(block.arguments, entry.arguments, strict=True))
        with ir.InsertionPoint(entry):
            for inner in block.operations:
                inner = inner.operation
                if inner.name == "stablehlo.return":
                    func.ReturnOp([mapping[inner.operands[0]]])
                elif element != op.operands[0].type.element_type:
                    operands = [mapping[value] for value in inner.operands]
                    wide = ir.Operation.create(inner.name, [type_], operands)
                    mapping[inner.results[0]] = wide.results[0]
                else:
                    clone_into(inner, mapping)
    return name


def _call(op: Any, function: str, axis: int, is_reverse: bool) -> Any:
    i64 = ir.IntegerType.get_signless(64)
    element = _wide_type(op)
    operands = [_converted(value, element) for value in op.operands]
    attributes = {
        "call_target_name": ir.StringAttr.get(TARGET),
        "called_computations": ir.ArrayAttr.get([ir.FlatSymbolRefAttr.get(function)]),
        "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4),
        "backend_config": ir.DictAttr.get(
            {"axis": ir.IntegerAttr.get(i64, axis), "reverse": ir.BoolAttr.get(is_reverse)}
        ),
    }
    call = ir.Operation.create(
        "stablehlo.custom_call", [operands[0].type], operands, attributes
    ).results[0]
    return _converted(call, op.results[0].type.element_type)


def _converted(value: Any, element: Any) -> Any:
    if value.type.element_type == element:
        return value
    type_ = ir.RankedTensorType.get(list(value.type.shape), element)
    return ir.Operation.create("stablehlo.convert", [type_], [value]).results[0]
