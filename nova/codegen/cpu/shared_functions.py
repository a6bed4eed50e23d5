"""Functions that the kernels of a module share: each is emitted once and called from many kernels.

Input: a name, argument types and a body. Output: a private function of the enclosing module with
the attribute `nova.shared`, and calls of it at the insertion point. The GEMM packing functions and
microkernels are such functions: a kernel that uses them consists of loops and calls, and compiles
fast. Later passes keep these functions, and code generation puts them in a separate object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nova.codegen.common.builder import element_type
from nova.ir.attributes import SCALAR_LOOPS, SHARED, noalias_dictionaries
from nova.ir.bindings import func, ir, memref
from nova.ir.buffers import view_as

_NO_END = 1 << 40
"""Elements of a buffer whose size the function does not know; bare pointers need a static size."""


def buffer_type(name: str) -> ir.MemRefType:
    """The type of a buffer argument of a shared function."""
    return ir.MemRefType.get([_NO_END], element_type(name))


def call_shared(
    name: str,
    buffers: Sequence[ir.Value],
    numbers: Sequence[ir.Value],
    unaliased: int,
    body: Callable[..., None],
    *,
    scalar_loops: bool = False,
) -> None:
    """Call the shared function `name`; `body` emits it if the module does not have it yet.

    `body` receives the arguments: the buffers, then the numbers. The first `unaliased` buffers do
    not overlap with anything that the function writes. `scalar_loops` marks it for LLVM's
    vectorizer.
    """
    module = _enclosing("builtin.module")
    if name not in ir.SymbolTable(module):
        types = [buffer_type(str(b.type.element_type)) for b in buffers]
        types += [n.type for n in numbers]
        function = _write(module, name, types, unaliased, body)
        if scalar_loops:
            SCALAR_LOOPS.set(function)
    operands = [without_end(buffer) for buffer in buffers] + list(numbers)
    func.CallOp([], ir.FlatSymbolRefAttr.get(name), operands)


def call_shared_numbers(
    name: str, numbers: Sequence[ir.Value], body: Callable[..., Sequence[ir.Value]]
) -> list[ir.Value]:
    """Call the shared function `name`, which computes indices from indices; `body` emits it."""
    module = _enclosing("builtin.module")
    if name not in ir.SymbolTable(module):
        _write(module, name, [n.type for n in numbers], 0, body)
    function = ir.SymbolTable(module)[name]
    results = function.type.results
    return list(func.CallOp(results, ir.FlatSymbolRefAttr.get(name), list(numbers)).results)


def entry_alloca(elements: int, type_: str) -> ir.Value:
    """Allocate a 64-byte aligned buffer at the start of the enclosing function."""
    with ir.InsertionPoint.at_block_begin(_enclosing("func.func").regions[0].blocks[0]):
        local_type = ir.MemRefType.get([elements], element_type(type_))
        return memref.AllocaOp(local_type, [], [], alignment=64).result


def _enclosing(name: str) -> Any:
    op = ir.InsertionPoint.current.block.owner.operation
    while op.name != name:
        op = op.parent.operation
    return op


def without_end(buffer: ir.Value) -> ir.Value:
    """Cast a flat buffer to the type that shared functions take."""
    return view_as(buffer, buffer_type(str(buffer.type.element_type)))


def _write(
    module: Any, name: str, types: list[ir.Type], unaliased: int, body: Callable[..., Any]
) -> Any:
    with ir.InsertionPoint(module.regions[0].blocks[0]), ir.Location.name(name):
        function = func.FuncOp(name, (types, []), visibility="private")
        SHARED.set(function)
        function.arg_attrs = noalias_dictionaries([i < unaliased for i in range(len(types))])
        with ir.InsertionPoint(function.add_entry_block()):
            results = body(*function.arguments) or []
            func.ReturnOp(results)
        signature = ir.FunctionType.get(types, [value.type for value in results])
        function.attributes["function_type"] = ir.TypeAttr.get(signature)
    return function
