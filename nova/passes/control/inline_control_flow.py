"""`inline-control-flow`: control functions that need the host become scf ops in `main` again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from nova.core.records import record
from nova.errors import UnsupportedOpError
from nova.ir.attributes import DEVICE
from nova.ir.bindings import arith, ir, scf, tensor
from nova.ir.clone import clone_into
from nova.ir.control_flow.emit_scf import read_rows, write_rows
from nova.ir.control_flow.functions import (
    Control,
    control_functions,
    is_call,
    name_of,
    region_modules,
)
from nova.ir.diagnostics import place_of
from nova.ir.index import index
from nova.ir.walk import every_op, functions, main_function
from nova.passes.base import Pass, UpstreamPass
from nova.passes.control.scalar_loops import emit_scalar_loop, is_scalar_loop
from nova.passes.importing.convert_tensor_to_linalg import ConvertTensorToLinalg
from nova.passes.kernels.form_host_regions import inline_host_regions


@record
class InlineControlFlow(Pass):
    """Undo `outline-control-flow` for loops and branches that a device cannot run.

    These have a region with ops that are pinned to the host, or with loops over single elements,
    which are not programs of their own. Their calls become scf ops, with all control functions
    inside of them: one kernel, which runs on the host (see `pin-control-flow`). Loops over a few
    numbers become scalar code of a device kernel (`scalar_loops.py`).
    """

    name: ClassVar[str] = "inline-control-flow"
    reads_regions: ClassVar[bool] = True

    def run(self, module: ir.Module) -> None:
        if _inline_controls(module, needs_host):
            # Constants move out of the loops, and slices become structured ops.
            UpstreamPass("canonicalize,cse", verify=False).run(module)
            ConvertTensorToLinalg().run(module)


def needs_host(region: Any) -> bool:
    """Whether the module of a region has ops that cannot be kernels of a device.

    Regions inside of it come first: their control functions are scf ops by now if they need it.
    """
    if any(DEVICE.has(f) for f in functions(region)):
        return True
    operations = [op.operation for op in main_function(region).entry_block.operations]
    return any(DEVICE.has(op) or _is_host_flow(op) for op in operations)


def _is_host_flow(op: Any) -> bool:
    """Whether an op is a loop or branch that one thread of a device cannot run (pin-control-flow).

    Loops over elements that load and store them are left (scatters and sorts), and over numbers.
    """
    inside = every_op(op) if op.name.startswith("scf.") else []
    return any(
        inner.name.startswith("linalg.")
        or inner.name == "tensor.empty"
        or (inner.name == "scf.while" and any(map(_is_tensor, inner.results)))
        for inner in inside
    )


def _is_tensor(value: Any) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def _inline_controls(module: Any, is_inlined: Callable[[Any], bool]) -> bool:
    """Inline the control functions with a region for which `is_inlined`; whether there is one."""
    main = main_function(module)
    controls = {name_of(f): f for f in control_functions(module)}
    regions = {name_of(m): m for m in region_modules(module)}
    changed = False
    for op in list(main.entry_block.operations):
        op = op.operation
        if not is_call(op) or op.attributes["callee"].value not in controls:
            continue
        function = controls[op.attributes["callee"].value]
        control = Control.of(function)
        modules = [regions[name] for name in control.regions]
        is_scalar = is_scalar_loop(control, op, modules)
        if not is_scalar and control.construct != "call" and not any(map(is_inlined, modules)):
            continue
        changed = True
        for region in modules:
            inline_host_regions(region, main_function(region))
            _inline_controls(region, lambda _: True)
        with ir.InsertionPoint(op), op.location:
            if is_scalar:
                results: Sequence[Any] = emit_scalar_loop(control, op, modules)
            else:
                results = _emit(control, op, [main_function(m).entry_block for m in modules])
        for old, new in zip(op.results, results, strict=True):
            old.replace_all_uses_with(new)
        for gone in (op, function.operation, *(m.operation for m in modules)):
            gone.erase()
    return changed


def _emit(control: Control, call: Any, bodies: list[Any]) -> Sequence[Any]:
    if control.construct == "call":
        raise UnsupportedOpError(
            "a program for a device calls a file, which has code for CPUs",
            where=place_of(call.location),
            hint="nova.call(program, ..., inline=True) compiles the graph of the file for it",
        )
    if control.construct == "switch":
        return _switch(call, bodies)
    return (
        _while(control, call, bodies[0])
        if control.construct == "while"
        else _for(control, call, bodies[0])
    )


def _switch(call: Any, bodies: list[Any]) -> Sequence[Any]:
    selector, *operands = call.operands
    types = [r.type for r in call.results]
    chosen = tensor.extract(selector, [])

    def branch(number: int) -> Sequence[Any]:
        if number == len(bodies) - 1:
            return _inline(bodies[number], operands)
        if chosen.type == ir.IntegerType.get_signless(1):
            true = arith.ConstantOp(chosen.type, 1).result
            is_this = arith.xori(chosen, true)
        else:
            constant = arith.ConstantOp(chosen.type, number).result
            is_this = arith.cmpi(arith.CmpIPredicate.sle, chosen, constant)
        choice = scf.IfOp(is_this, types, has_else=True)
        with ir.InsertionPoint(choice.then_block):
            scf.YieldOp(_inline(bodies[number], operands))
        with ir.InsertionPoint(choice.else_block):
            scf.YieldOp(branch(number + 1))
        return list(choice.results)

    return branch(0)


def _while(control: Control, call: Any, body: Any) -> Sequence[Any]:
    condition, *others = call.operands
    consts, carries = others[: control.consts], others[control.consts :]
    types = [condition.type, *(c.type for c in carries)]
    loop = ir.Operation.create("scf.while", types, [condition, *carries], regions=2)
    locations = [call.location] * len(types)
    before, after = (r.blocks.append(*types, arg_locs=locations) for r in loop.regions)
    with ir.InsertionPoint(before):
        scf.ConditionOp(tensor.extract(before.arguments[0], []), before.arguments)
    with ir.InsertionPoint(after):
        *values, again = _inline(body, [*consts, *list(after.arguments)[1:]])
        scf.YieldOp([again, *values])
    return list(loop.results)[1:]


def _for(control: Control, call: Any, body: Any) -> Sequence[Any]:
    operands = list(call.operands)
    first_x = control.consts + control.carries
    consts, carries = operands[: control.consts], operands[control.consts : first_x]
    stacks = [
        tensor.empty(list(r.type.shape), r.type.element_type)
        for r in list(call.results)[control.carries :]
    ]
    loop = scf.ForOp(index(0), index(control.length), index(1), [*carries, *stacks])
    with ir.InsertionPoint(loop.body):
        position = loop.induction_variable
        if control.reverse:
            position = arith.subi(index(control.length - 1), position)
        i64 = ir.IntegerType.get_signless(64)
        number = tensor.from_elements(
            ir.RankedTensorType.get([], i64), [arith.index_cast(i64, position)]
        )
        types = [a.type for a in list(body.arguments)[1 + first_x :]]
        pairs = zip(operands[first_x:], types, strict=True)
        slices = [read_rows(x, position, type_) for x, type_ in pairs]
        arguments = list(loop.inner_iter_args)
        values = _inline(body, [number, *consts, *arguments[: control.carries], *slices])
        rows = zip(values[control.carries :], arguments[control.carries :], strict=True)
        stacked = [write_rows(row, into, position) for row, into in rows]
        scf.YieldOp([*values[: control.carries], *stacked])
    return list(loop.results)


def _inline(block: Any, arguments: Sequence[Any]) -> list[Any]:
    """Clone the ops of a region at the insertion point; return its results."""
    mapping = dict(zip(block.arguments, arguments, strict=True))
    *operations, ending = [op.operation for op in block.operations]
    for op in operations:
        clone_into(op, mapping)
    return [mapping.get(v, v) for v in ending.operands]
