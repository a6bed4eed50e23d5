"""`bufferize-kernels`: tensors become buffers; kernels take their destinations as arguments."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.codegen.common.tile_local import is_tile_local
from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.attributes import PROLOGUE, TILE_LOCAL
from nova.ir.bindings import func, ir, memref, tensor
from nova.ir.buffers import VIEWS, buffer_root, emit_copy, nbytes, view_as
from nova.ir.control_flow.functions import control_functions, is_control
from nova.ir.diagnostics import place_of
from nova.ir.kernel import Kernel, Main, set_argument_types
from nova.ir.linalg.generic import GenericOp, is_generic_op
from nova.ir.symbolic.size_table import SizeTable
from nova.ir.walk import (
    find_ops,
    find_tensor_ops,
    functions,
    functions_by_name,
    kernels,
    main_function,
)
from nova.passes.base import Pass, UpstreamPass
from nova.passes.kernels.loop_buffers import yield_in_place

_ONE_SHOT = (
    "one-shot-bufferize{bufferize-function-boundaries=true "
    "function-boundary-type-conversion=identity-layout-map},canonicalize"
)
_STACK_LIMIT = 64 * 1024
_TILED = VIEWS | {"linalg.generic", "arith.constant", "memref.alloc", "memref.copy", "func.return"}


@record
class BufferizeKernels(Pass):
    """Bufferize by destination passing.

    Upstream's one-shot bufferization decides which ops write in place. Every buffer that a kernel
    would have allocated becomes one of its arguments: first the inputs, then the results, then
    scratch (`nova.outs` counts the results). `main` allocates and passes them; kernels return
    nothing and do not use the heap. Uses of scratch of one type share a buffer if their lifetimes
    are disjoint. Tile-local buffers stay in the kernel (see nova/codegen/common/tile_local.py). The
    new value of an updated parameter gets a buffer without another use before: it may become the
    parameter itself, whose old value is read until then.
    """

    name: ClassVar[str] = "bufferize-kernels"

    def run(self, module: ir.Module) -> None:
        main = main_function(module)
        for function in functions(module):
            if is_control(function):
                _read_arguments(function)
            else:
                _protect_arguments(function)
        for loop in find_ops(module, "scf.for", "scf.while"):
            yield_in_place(loop)
        _separate_updates(module, main)
        _separate_prologues(module)
        UpstreamPass(_ONE_SHOT, verify=False).run(module)  # the caller of this pass verifies
        main = main_function(module)
        table = SizeTable.of(main)
        results = {
            kernel.name.value: _pass_destinations(kernel, table) for kernel in kernels(module)
        }
        for function in control_functions(module):
            results[function.name.value] = _pass_results(function)
        for op in list(main.entry_block.operations):
            if op.operation.name == "func.call":
                _rewrite_call(op, results[op.callee.value])


def _protect_arguments(function: Any) -> None:
    """Keep kernels from writing to their inputs: those may be user arrays, or have more readers.

    In-place updates of donated parameters are decided later, by `plan-workspace`.
    """
    read_only = ir.BoolAttr.get(False)
    arg_attrs = list(function.arg_attrs) if function.arguments else []
    function.arg_attrs = ir.ArrayAttr.get(
        [
            ir.DictAttr.get(
                {**{a.name: a.attr for a in entries}, "bufferization.writable": read_only}
            )
            for entries in arg_attrs
        ]
    )


def _read_arguments(function: Any) -> None:
    """Say that a control function only reads its arguments: upstream does not see its regions."""
    read = ir.DictAttr.get({"bufferization.access": ir.StringAttr.get("read")})
    function.attributes["arg_attrs"] = ir.ArrayAttr.get([read] * len(function.type.inputs))


def _pass_results(function: Any) -> _Destinations:
    """Make the results of a control function arguments, after its inputs."""
    inputs, results = list(function.type.inputs), list(function.type.results)
    for attribute in ("arg_attrs", "res_attrs"):
        if attribute in function.attributes:
            del function.attributes[attribute]
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get([*inputs, *results], [])
    )
    view = Kernel(function)
    view.ins, view.outs = len(inputs), len(results)
    return _Destinations(tuple(range(len(inputs), len(inputs) + len(results))), tuple(results))


def _separate_updates(module: ir.Module, main: Any) -> None:
    """Give the op that computes an updated parameter's new value a separate destination."""
    updates = len(Main(main).updates)
    named = functions_by_name(module)
    operations = main.entry_block.operations
    returned = operations[len(operations) - 1]
    for value in list(returned.operands)[len(returned.operands) - updates :]:
        call = buffer_root(value)
        if not isinstance(call, ir.OpResult) or call.owner.operation.name != "func.call":
            continue
        kernel = named[call.owner.attributes["callee"].value]
        if is_control(kernel):
            continue
        inside = kernel.entry_block.operations
        result = buffer_root(inside[len(inside) - 1].operands[call.result_number])
        if isinstance(result, ir.OpResult) and is_generic_op(result.owner):
            _own_destination(GenericOp(result.owner.operation), result.result_number)


def _separate_prologues(module: ir.Module) -> None:
    """Give the ops of prologues separate destinations.

    Each block computes them again in its own memory, which no result of the kernel may share.
    """
    for kernel in kernels(module):
        for op in find_tensor_ops(kernel, "linalg.generic"):
            generic = GenericOp(op.operation)
            for result in range(generic.num_outputs if PROLOGUE.has(op) else 0):
                _own_destination(generic, result)


def _own_destination(generic: GenericOp, result: int) -> None:
    position = generic.num_inputs + result
    empty = generic.op.operands[position]
    if not isinstance(empty, ir.OpResult) or empty.owner.operation.name != "tensor.empty":
        return
    with ir.InsertionPoint(generic.op), generic.op.location:
        generic.op.operands[position] = tensor.EmptyOp(
            empty.type.shape, empty.type.element_type
        ).result


@record
class _Destinations:
    """The destinations of a kernel's results: the argument index of each, and new arguments."""

    results: tuple[int, ...]
    added: tuple[Any, ...]


def _pass_destinations(kernel: Any, table: SizeTable | None) -> _Destinations:
    block = kernel.entry_block
    returned = block.operations[len(block.operations) - 1]
    inputs = len(block.arguments)
    _own_results(returned)
    _hoist_large_buffers(kernel)
    allocs = [op for op in block.operations if op.operation.name == "memref.alloc"]
    roots = [buffer_root(v) for v in returned.operands]
    outs = list(dict.fromkeys(r for r in roots if r in [a.operation.results[0] for a in allocs]))
    scratch = [a.operation.results[0] for a in allocs if a.operation.results[0] not in outs]
    scratch = _keep_in_tiles(kernel, _share_scratch(block, scratch), table)
    position: dict[Any, int] = {a: i for i, a in enumerate(block.arguments)}
    added = []
    for value in [*outs, *scratch]:
        argument = block.add_argument(value.type, kernel.location)
        position[value] = len(block.arguments) - 1
        added.append(value.type)
        value.replace_all_uses_with(argument)
    for root in roots:
        if root not in position:
            raise LoweringError(
                f"{kernel.name.value} returns a buffer it did not make",
                where=place_of(kernel.location),
            )
    results = tuple(position[r] for r in roots)
    for alloc in allocs:
        alloc.operation.erase()
    with ir.InsertionPoint(returned.operation), kernel.location:
        func.ReturnOp([])
    returned.operation.erase()
    _allocate_on_stack(kernel)
    _structure_copies(kernel)
    _set_type(kernel)
    view = Kernel(kernel)
    view.ins, view.outs = inputs, len(outs)
    return _Destinations(results, tuple(added))


def _own_results(returned: Any) -> None:
    """Copy results of a kernel that none of its ops allocated: the result of a loop or branch."""
    for i, value in enumerate(returned.operands):
        root = buffer_root(value)
        if isinstance(root, ir.OpResult) and root.owner.operation.name.startswith("scf."):
            with ir.InsertionPoint(returned.operation), returned.location:
                buffer = memref.AllocOp(value.type, [], []).result
                emit_copy(value, buffer)
            returned.operands[i] = buffer


def _hoist_large_buffers(kernel: Any) -> None:
    """Hoist buffers out of loops that allocate them in every iteration, if too large for the stack.

    No iteration reads what another left in them: carried values are in the buffers of the initial
    values (see `yield_in_place`).
    """
    block = kernel.entry_block
    top = {op.operation for op in block.operations}
    for op in find_ops(kernel, "memref.alloc"):
        type_ = op.results[0].type
        if op not in top and type_.has_static_shape and nbytes(type_) > _STACK_LIMIT:
            op.move_before(block.operations[0].operation)


def _share_scratch(block: Any, scratch: list[Any]) -> list[Any]:
    """Merge scratch of one type with disjoint lifetimes into one buffer; return the rest.

    Tiles do not interfere: a kernel's ops access its intermediate values at their own tile only.
    Values of a prologue are not shared with those of tiles.
    """
    span: dict[Any, tuple[int, int]] = {}
    for time, op in enumerate(block.operations):
        for value in _used(op.operation):
            root = buffer_root(value)
            span[root] = (span.get(root, (time, time))[0], time)
    whole = {v for op in block.operations if PROLOGUE.has(op) for v in _roots(op)}
    buffers: list[Any] = []
    for value in sorted((v for v in scratch if v in span), key=lambda v: span[v]):
        first, last = span[value]
        shared = [k for k in buffers if k.type == value.type and (k in whole) == (value in whole)]
        free = next((k for k in shared if span[k][1] < first), None)
        if free is None:
            buffers.append(value)
        else:
            value.replace_all_uses_with(free)
            span[free] = (span[free][0], last)
    return buffers


def _roots(op: Any) -> list[Any]:
    return [buffer_root(value) for value in _used(op.operation)]


def _keep_in_tiles(kernel: Any, scratch: list[Any], table: SizeTable | None) -> list[Any]:
    """Leave tile-local buffers in the kernel; return the others."""
    grid = Kernel(kernel).grid
    names = {op.operation.name for op in kernel.entry_block.operations}
    if not names <= _TILED:
        return scratch  # it will have one tile
    local = [value for value in scratch if is_tile_local(value, grid, table)]
    for value in reversed(local):
        with ir.InsertionPoint.at_block_begin(kernel.entry_block), value.owner.location:
            alloca = memref.AllocaOp(value.type, [], [])
            TILE_LOCAL.set(alloca)
        value.replace_all_uses_with(alloca.result)
    return [value for value in scratch if value not in local]


def _used(op: Any) -> list[Any]:
    """The operands of an op and of all nested ops."""
    used = list(op.operands)
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                used += _used(inner.operation)
    return used


def _set_type(function: Any) -> None:
    if "arg_attrs" in function.attributes:
        del function.attributes["arg_attrs"]  # it has one entry for each of the old arguments
    set_argument_types(function, [])


def _allocate_on_stack(kernel: Any) -> None:
    """Move allocations in loops (from upstream's bufferization) to the stack; must be small."""
    for op in find_ops(kernel, "memref.alloc"):
        type_ = op.results[0].type
        if not type_.has_static_shape or nbytes(type_) > _STACK_LIMIT:
            raise LoweringError(
                f"{kernel.name.value} would allocate {type_} in a loop", where=place_of(op.location)
            )
        with ir.InsertionPoint.at_block_begin(kernel.entry_block), op.location:
            stack = memref.AllocaOp(type_, [], []).result
        op.results[0].replace_all_uses_with(stack)
        op.erase()


def _structure_copies(kernel: Any) -> None:
    """Rewrite the copies that upstream inserted as linalg, so that they are tiled."""
    whole = {
        v
        for op in find_tensor_ops(kernel, "linalg.generic")
        if PROLOGUE.has(op)
        for v in _roots(op)
    }
    for op in find_ops(kernel, "memref.copy"):
        with ir.InsertionPoint(op), op.location:
            copy = emit_copy(*op.operands)
        if buffer_root(op.operands[1]) in whole:
            PROLOGUE.set(copy)
        op.erase()


def _rewrite_call(call: Any, destinations: _Destinations) -> None:
    op = call.operation
    with ir.InsertionPoint(op), op.location:
        buffers = [memref.AllocOp(t, [], []).result for t in destinations.added]
        operands = [*op.operands, *buffers]
        for result, position in zip(op.results, destinations.results, strict=True):
            result.replace_all_uses_with(view_as(operands[position], result.type))
        func.CallOp([], ir.FlatSymbolRefAttr.get(call.callee.value), operands)
    op.erase()
