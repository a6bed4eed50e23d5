"""Small walks over modules that several passes use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova.errors import LoweringError
from nova.ir.bindings import func, ir
from nova.ir.diagnostics import place_of
from nova.ir.kernel import is_kernel


def functions(module: ir.Module) -> list[Any]:
    """The func.func ops of a module, in order."""
    return [op for op in module.body.operations if isinstance(op, func.FuncOp)]


def find_function(module: ir.Module, name: str) -> Any | None:
    """The function called `name`, or None."""
    return next((f for f in functions(module) if f.name.value == name), None)


def functions_by_name(module: ir.Module) -> dict[str, Any]:
    """The functions of a module by name; for many lookups."""
    return {f.name.value: f for f in functions(module)}


def main_function(module: ir.Module) -> Any:
    """The function `main` with its one block; LoweringError if the module has none."""
    main = find_function(module, "main")
    if main is None:
        raise LoweringError("the module has no function @main")
    if len(main.body.blocks) != 1:
        raise LoweringError("@main must have one block", where=place_of(main.location))
    return main


def kernels(module: ir.Module) -> list[Any]:
    """The kernel functions, in order."""
    return [f for f in functions(module) if is_kernel(f)]


def require_buffers(module: ir.Module) -> None:
    """LoweringError unless tensors have become buffers, which kernels take and do not return.

    The passes after `kernels-to-buffers` erase calls and change types: on tensors that would leave
    values without a definition.
    """
    for function in functions(module):
        inputs, results = list(function.type.inputs), list(function.type.results)
        tensors = [t for t in inputs + results if isinstance(t, ir.RankedTensorType)]
        if tensors or (is_kernel(function) and (results or len(function.body.blocks) != 1)):
            raise LoweringError(
                f"@{function.name.value} has the type {function.type}: buffers without results "
                "are expected",
                where=place_of(function.location),
                hint="run kernels-to-buffers first",
            )


def device_modules(module: ir.Module) -> list[Any]:
    """The gpu.module ops of a module, in order."""
    return [op.operation for op in module.body.operations if op.operation.name == "gpu.module"]


def function_ops(module: ir.Module, prefix: str = "") -> list[Any]:
    """Top-level ops of every function body whose name starts with `prefix`, in order."""
    return [
        op.operation
        for function in functions(module)
        if not function.is_external
        for op in function.entry_block.operations
        if op.operation.name.startswith(prefix)
    ]


def every_op(within: Any, *, outer_first: bool = False) -> list[Any]:
    """All ops at any depth of a module or function, and itself; by default in post-order."""
    ops: list[Any] = []

    advance = ir.WalkResult.ADVANCE

    def visit(op: Any) -> ir.WalkResult:
        ops.append(op)
        return advance

    _walk(within, visit, ir.WalkOrder.PRE_ORDER if outer_first else ir.WalkOrder.POST_ORDER)
    return ops


def nested_names(op: Any) -> list[str]:
    """The names of all ops in the regions of `op`, at any depth."""
    names: list[str] = []
    advance = ir.WalkResult.ADVANCE

    def visit(inner: Any) -> ir.WalkResult:
        names.append(inner.name)
        return advance

    _walk(op, visit, ir.WalkOrder.PRE_ORDER)
    return names[1:]


def _walk(within: Any, visit: Callable[[Any], ir.WalkResult], order: ir.WalkOrder) -> None:
    try:
        within.operation.walk(visit, order)
    except RuntimeError as error:
        # MLIR replaces an exception of the callback by one with its text; here it is Ctrl-C.
        if "KeyboardInterrupt" in str(error):
            raise KeyboardInterrupt from None
        raise


def find_tensor_ops(within: Any, *names: str) -> list[Any]:
    """Like `find_ops`, for ops that are not in the bodies of linalg ops: those are not visited."""
    ops: list[Any] = []
    skip, advance = ir.WalkResult.SKIP, ir.WalkResult.ADVANCE

    def visit(op: Any) -> ir.WalkResult:
        name = op.name
        if name in names:
            ops.append(op)
        return skip if name.startswith("linalg.") else advance

    _walk(within, visit, ir.WalkOrder.PRE_ORDER)
    return ops


def find_ops(within: Any, *names: str) -> list[Any]:
    """Every op with one of these names in a module or function, at any depth; in post-order."""
    ops: list[Any] = []
    wanted, advance = frozenset(names), ir.WalkResult.ADVANCE

    # Filtered here, and not in a list of all: a wrapper that nobody keeps is freed at once.
    def visit(op: Any) -> ir.WalkResult:
        if op.name in wanted:
            ops.append(op)
        return advance

    _walk(within, visit, ir.WalkOrder.POST_ORDER)
    return ops


def contains_dialect(within: Any, dialect: str) -> bool:
    """Whether an op at any depth is one of a dialect; stops at the first."""
    prefix = f"{dialect}."
    return contains_op(within, lambda op: op.name.startswith(prefix))


def contains_op(within: Any, matches: Callable[[Any], bool]) -> bool:
    """Whether an op at any depth of a module or function matches; stops at the first."""
    is_in = False
    advance, interrupt = ir.WalkResult.ADVANCE, ir.WalkResult.INTERRUPT

    def visit(op: Any) -> ir.WalkResult:
        nonlocal is_in
        is_in = is_in or matches(op)
        return interrupt if is_in else advance

    _walk(within, visit, ir.WalkOrder.PRE_ORDER)
    return is_in


def defining_op(value: Any, name: str) -> Any | None:
    """The op called `name` that defines `value`, or None."""
    if not isinstance(value, ir.OpResult) or value.owner.operation.name != name:
        return None
    return value.owner.operation
