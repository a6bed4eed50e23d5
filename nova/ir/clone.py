"""Copies modules, and ops with other operands."""

from __future__ import annotations

from typing import Any

from nova.ir.bindings import ir


def copy_module(module: ir.Module) -> ir.Module:
    """A copy of the module, in the same context."""
    with module.context, module.operation.location:
        copy = ir.Module.create()
        for name in module.operation.attributes:
            copy.operation.attributes[name] = module.operation.attributes[name]
        with ir.InsertionPoint(copy.body):
            for op in module.body.operations:
                op.operation.clone()
        return copy


def clone_into(op: Any, mapping: dict[Any, Any], *, nested: bool = True) -> Any:
    """Copy `op` to the insertion point, with operands (also nested ones) from `mapping`.

    `mapping` gains the results. Without `nested`, for an op whose regions use no outer values, only
    its own operands are looked up.
    """
    new = op.clone()
    _remap(new, mapping, nested)
    mapping.update(zip(op.results, new.results, strict=True))
    return new


def _remap(op: Any, mapping: dict[Any, Any], nested: bool = True) -> None:
    for i, operand in enumerate(op.operands):
        if operand in mapping:
            op.operands[i] = mapping[operand]
    for region in op.regions if nested else ():
        for block in region.blocks:
            for inner in block.operations:
                _remap(inner.operation, mapping)
