"""Ops with regions as scf ops on tensors, whose regions have nova ops.

MLIR's own dialect has the verifier, the syntax and the canonicalizations that loops and branches
need: `cond` is `scf.if` or `scf.index_switch`, `while` is `scf.while`, `scan` is `scf.for` with
slices of its operands and results. `outline-control-flow` makes programs of the regions. `call` is
a call of a control function (`functions.py`) from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nova.core.dtypes import TensorType
from nova.ir.bindings import arith, func, ir, scf, tensor
from nova.ir.control_flow.functions import Control
from nova.ir.index import index
from nova.ir.symbolic.size_table import representative
from nova.ir.types import tensor_type
from nova.ops.loops.control import CALL

Inline = Callable[[Sequence[Any]], list[Any]]
"""Emits a region at the insertion point, over values of its parameters; returns its results."""


def emit_control(
    name: str,
    operands: Sequence[Any],
    attrs: Mapping[str, Any],
    results: Sequence[TensorType],
    regions: Sequence[Inline],
) -> list[Any]:
    """The results of an op with regions, at the insertion point and the current location."""
    types = [tensor_type(t, dialect=True) for t in results]
    if name == CALL.name:
        return _call(operands, attrs["memory"], types)
    if name == "cond":
        return _cond(operands, types, regions)
    if name == "while":
        return _while(operands, attrs["consts"], types, regions)
    return _scan(operands, attrs, types, regions[0])


def _call(operands: Sequence[Any], memory: int, types: list[Any]) -> list[Any]:
    """A call of a file: a call of a control function, which is declared for it in the module."""
    top = ir.InsertionPoint.current.block.owner
    while top.operation.parent.name != "builtin.module":
        top = top.operation.parent
    body = top.operation.parent.regions[0].blocks[0]
    name = f"call_{len(list(body.operations))}"
    with ir.InsertionPoint(top.operation):
        function = func.FuncOp(name, ([o.type for o in operands], types), visibility="private")
    Control("call", (), memory=memory).set(function)
    return list(func.CallOp(types, ir.FlatSymbolRefAttr.get(name), operands).results)


def _cond(operands: Sequence[Any], types: list[Any], regions: Sequence[Inline]) -> list[Any]:
    selector, *values = operands
    chosen = tensor.extract(selector, [])
    if chosen.type == ir.IntegerType.get_signless(1):
        op = scf.IfOp(chosen, types, has_else=True)
        blocks = [op.else_block, op.then_block]
    else:
        zero = arith.ConstantOp(chosen.type, 0).result
        number = arith.index_cast(ir.IndexType.get(), arith.maxsi(chosen, zero))
        cases = ir.DenseI64ArrayAttr.get(list(range(len(regions) - 1)))
        op = ir.Operation.create(
            "scf.index_switch",
            types,
            [number],
            attributes={"cases": cases},
            regions=len(regions),
        )
        # The default comes first in the op, and is the last branch.
        every = [region.blocks.append() for region in op.regions]
        blocks = [*every[1:], every[0]]
    for block, inline in zip(blocks, regions, strict=True):
        with ir.InsertionPoint(block):
            scf.YieldOp(inline(values))
    return list(op.results)


def _while(
    operands: Sequence[Any], consts: int, types: list[Any], regions: Sequence[Inline]
) -> list[Any]:
    captured, carries = list(operands[:consts]), list(operands[consts:])
    loop = ir.Operation.create("scf.while", types, carries, regions=2)
    locations = [ir.Location.current] * len(types)
    before, after = (r.blocks.append(*types, arg_locs=locations) for r in loop.regions)
    with ir.InsertionPoint(before):
        [again] = regions[0]([*captured, *before.arguments])
        scf.ConditionOp(tensor.extract(again, []), before.arguments)
    with ir.InsertionPoint(after):
        scf.YieldOp(regions[1]([*captured, *after.arguments]))
    return list(loop.results)


def _scan(
    operands: Sequence[Any], attrs: Mapping[str, Any], types: list[Any], body: Inline
) -> list[Any]:
    # A symbolic length is its representative, as in types.
    consts, length = attrs["consts"], representative(attrs["length"])
    first_x = consts + attrs["carries"]
    carries, xs = list(operands[consts:first_x]), list(operands[first_x:])
    stacks = [tensor.empty(list(t.shape), t.element_type) for t in types[len(carries) :]]
    loop = scf.ForOp(index(0), index(length), index(1), [*carries, *stacks])
    with ir.InsertionPoint(loop.body):
        position = loop.induction_variable
        if attrs["reverse"]:
            position = arith.subi(index(length - 1), position)
        i64 = ir.IntegerType.get_signless(64)
        number = tensor.from_elements(
            ir.RankedTensorType.get([], i64), [arith.index_cast(i64, position)]
        )
        slices = [read_rows(x, position, _row_type(x)) for x in xs]
        arguments = list(loop.inner_iter_args)
        values = body([number, *operands[:consts], *arguments[: len(carries)], *slices])
        rows = zip(values[len(carries) :], arguments[len(carries) :], strict=True)
        stacked = [write_rows(row, into, position) for row, into in rows]
        scf.YieldOp([*values[: len(carries)], *stacked])
    return list(loop.results)


def _row_type(stacked: Any) -> Any:
    return ir.RankedTensorType.get(list(stacked.type.shape)[1:], stacked.type.element_type)


def read_rows(stacked: Any, position: Any, type_: Any) -> Any:
    """The slice of a value at a position along the first axis, which `type_` may keep."""
    if 0 in type_.shape:  # MLIR takes no offset in an axis of size 0
        return tensor.empty(list(type_.shape), type_.element_type)
    shape = list(stacked.type.shape)
    return _slice_op("tensor.extract_slice", [type_], [stacked], shape, position)


def write_rows(row: Any, into: Any, position: Any) -> Any:
    """`into` with the slice at a position along the first axis replaced by `row`."""
    if 0 in into.type.shape:
        return into
    return _slice_op(
        "tensor.insert_slice", [into.type], [row, into], list(into.type.shape), position
    )


def _slice_op(
    name: str, types: list[Any], values: list[Any], shape: list[int], position: Any
) -> Any:
    """A slice of size 1 at `position` along the first axis, and all of the other axes."""
    rank = len(shape)
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    return ir.Operation.create(
        name,
        types,
        [*values, position],
        attributes={
            "static_offsets": ir.DenseI64ArrayAttr.get([dynamic, *[0] * (rank - 1)]),
            "static_sizes": ir.DenseI64ArrayAttr.get([1, *shape[1:]]),
            "static_strides": ir.DenseI64ArrayAttr.get([1] * rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([*[1] * len(values), 1, 0, 0]),
        },
    ).result
