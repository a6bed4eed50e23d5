"""Bools in memory: one byte each, 0 or 1, as numpy has them.

MLIR's i1 buffers would have the same bytes, but LLVM does not vectorize loops over i1 memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.ir.bindings import arith, ir, memref
from nova.ir.types import dense_bytes
from nova.ir.walk import every_op, functions


def store_bools_as_bytes(module: ir.Module) -> None:
    """Retype every i1 buffer of the module to i8, and convert at plain loads and stores.

    linalg bodies keep their i1 scalars: their lowering converts at the element accesses.
    """
    for op in module.body.operations:
        if op.operation.name == "memref.global":
            _retype_global(op.operation)
    for function in functions(module):
        if function.is_external:
            _set_type(function, [_as_bytes(t) for t in function.type.inputs])
            continue
        accesses: list[Any] = []
        for op in every_op(function):
            for result in op.results:
                _retype(result)
            for region in op.regions:
                for block in region.blocks:
                    for argument in block.arguments:
                        _retype(argument)
            if op.name in ("memref.load", "memref.store"):
                accesses.append(op)
        for op in accesses:
            _convert(op)
        _set_type(function, [a.type for a in function.entry_block.arguments])


def _set_type(function: Any, types: list[Any]) -> None:
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))


def _byte() -> Any:
    return ir.IntegerType.get_signless(8)


def _is_bool(type_: Any) -> bool:
    return isinstance(type_, ir.MemRefType) and str(type_.element_type) == "i1"


def _as_bytes(type_: Any) -> Any:
    return ir.MemRefType.get(list(type_.shape), _byte()) if _is_bool(type_) else type_


def _retype(value: Any) -> None:
    if _is_bool(value.type):
        value.set_type(_as_bytes(value.type))


def _retype_global(op: Any) -> None:
    type_ = op.attributes["type"].value
    if not _is_bool(type_):
        return
    shape = list(type_.shape)
    values = np.frombuffer(dense_bytes(op.attributes["initial_value"]), np.uint8)
    attr = ir.DenseElementsAttr.get(values, type=_byte(), shape=shape)
    op.attributes["initial_value"] = attr
    op.attributes["type"] = ir.TypeAttr.get(ir.MemRefType.get(shape, _byte()))


def _convert(op: Any) -> None:
    i1 = ir.IntegerType.get_signless(1)
    if op.name == "memref.load" and op.results[0].type == i1:
        with ir.InsertionPoint(op), op.location:
            loaded = memref.load(op.operands[0], list(op.operands)[1:])
            op.results[0].replace_all_uses_with(arith.trunci(i1, loaded))
        op.erase()
    elif op.name == "memref.store" and op.operands[0].type == i1:
        with ir.InsertionPoint(op), op.location:
            wide = arith.extui(_byte(), op.operands[0])
            memref.store(wide, op.operands[1], list(op.operands)[2:])
        op.erase()
