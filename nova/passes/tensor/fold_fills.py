"""`fold-fills`: ops read a constant instead of a tensor that is filled with it."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.bindings import ir, tensor
from nova.ir.buffers import TENSOR_VIEWS
from nova.ir.linalg.generic import GenericOp
from nova.ir.linalg.ops import generic_op, yield_op
from nova.ir.walk import find_tensor_ops
from nova.passes.base import Pass


@record
class FoldFills(Pass):
    """Fold fills with a constant into elementwise ops, and reshapes of fills into fills.

    Other compilers broadcast constants to tensors, and CSE merges equal ones. Upstream fuses only
    an op with one user, so these fills would become kernels, whose results other kernels read. A
    fill that a matmul adds to must be its destination itself, not a reshape of it: otherwise a
    kernel writes the zeros, and the matmul reads them. Fills without users are erased.
    """

    name: ClassVar[str] = "fold-fills"

    def run(self, module: ir.Module) -> None:
        fills: dict[Any, Any] = {}
        for op in find_tensor_ops(module, "linalg.generic", *TENSOR_VIEWS):
            if op.name in TENSOR_VIEWS:
                if (constant := fills.get(op.operands[0])) is not None:
                    fills[_refill(op, constant)] = constant
            elif (constant := _filled_with(op)) is not None:
                fills[op.results[0]] = constant
            elif any(value in fills for value in op.operands):
                _read_constants(op, fills)
        for value in reversed(fills):
            if not any(True for _ in value.uses):
                value.owner.operation.erase()


def _filled_with(op: Any) -> Any | None:
    """The constant that an op fills its result with, or None."""
    if len(op.operands) > 2:  # the destination, and perhaps a scalar
        return None
    structured = GenericOp(op)
    operations = structured.block.operations
    if len(operations) != 1 or len(op.results) != 1 or "reduction" in structured.iterators:
        return None
    value = operations[0].operands[0]
    for argument, operand in zip(structured.block.arguments, op.operands, strict=True):
        if value == argument and not isinstance(operand.type, ir.RankedTensorType):
            value = operand
    if not _is_constant(value) or not structured.out_dims:
        return None
    return value


def _is_constant(value: Any) -> bool:
    return isinstance(value, ir.OpResult) and value.owner.operation.name == "arith.constant"


def _refill(reshape: Any, constant: Any) -> Any:
    """Replace a reshape of a fill by a fill of that shape."""
    result = reshape.results[0]
    shape, element = list(result.type.shape), result.type.element_type
    with ir.InsertionPoint(reshape), reshape.location:
        empty = tensor.empty(shape, element)
        access = ir.AffineMap.get_identity(len(shape))
        fill = generic_op([result.type], [], [empty], [access], ["parallel"] * len(shape))
        with ir.InsertionPoint(fill.regions[0].blocks.append(element)):
            yield_op([constant])
    result.replace_all_uses_with(fill.results[0])
    reshape.erase()
    return fill.results[0]


def _read_constants(op: Any, fills: dict[Any, Any]) -> None:
    """Let the body of an elementwise op use the constants, and drop their operands."""
    structured = GenericOp(op)
    inputs = structured.inputs
    filled = [number for number, value in enumerate(inputs) if value in fills]
    # The result gives the bounds of all loops.
    is_elementwise = len(set(structured.out_dims)) == len(structured.iterators)
    if not filled or not is_elementwise or "reduction" in structured.iterators:
        return
    block, maps = structured.block, list(op.attributes["indexing_maps"])
    for number in filled:
        block.arguments[number].replace_all_uses_with(fills[inputs[number]])
    kept = [number for number in range(len(inputs)) if number not in filled]
    attributes = {name: op.attributes[name] for name in op.attributes}
    attributes["indexing_maps"] = ir.ArrayAttr.get(
        [maps[number] for number in kept] + maps[len(inputs) :]
    )
    sizes = [len(kept), structured.num_outputs]
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(sizes)
    operands = [inputs[number] for number in kept] + structured.outputs
    with ir.InsertionPoint(op), op.location:
        results = [result.type for result in op.results]
        new = ir.Operation.create(
            "linalg.generic", results, operands, attributes=attributes, regions=1
        )
    block.append_to(new.regions[0])
    for number in reversed(filled):
        block.erase_argument(number)
    for before, after in zip(op.results, new.results, strict=True):
        before.replace_all_uses_with(after)
    op.erase()
