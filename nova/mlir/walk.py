"""Small walks over modules that several passes need."""

from __future__ import annotations

from typing import Any

from nova.mlir.bindings import func, ir


def functions(module: ir.Module) -> list[Any]:
    """The func.func ops of a module, in order."""
    return [op for op in module.body.operations if isinstance(op, func.FuncOp)]


def find_function(module: ir.Module, name: str) -> Any | None:
    """The function called `name`, or None."""
    return next((f for f in functions(module) if f.name.value == name), None)


def function_ops(module: ir.Module, prefix: str = "") -> list[Any]:
    """Top-level ops of every function body whose name starts with `prefix`, in order."""
    return [
        op.operation
        for function in functions(module)
        if not function.is_external
        for op in function.entry_block.operations
        if op.operation.name.startswith(prefix)
    ]
