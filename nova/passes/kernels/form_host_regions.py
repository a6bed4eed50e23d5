"""`form-host-regions`: outlines the ops that are pinned to the host into host regions.

`inline_host_regions` is the inverse, for `form-kernels`: once the ops of a host region are kernels,
its calls join those of `main`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nova.errors import UnsupportedOpError
from nova.ir.attributes import DEVICE
from nova.ir.bindings import func, ir
from nova.ir.clone import clone_into
from nova.ir.control_flow.functions import control_functions, is_call, name_of
from nova.ir.diagnostics import place_of
from nova.ir.dialect import CONSTANT
from nova.ir.kernel import is_kernel
from nova.ir.walk import functions, main_function
from nova.passes.base import Pass


@dataclass(frozen=True)
class FormHostRegions(Pass):
    """Move the ops of `main` that have the attribute `nova.device` into private functions.

    A host region has as many of them as can run together: `main` is first reordered so that all ops
    that can run on the device do, then all that can on the host, and so on. So values move between
    host and device as rarely as possible. On the device, the ops that the next host region needs go
    first.

    Nothing is fused or merged across a function boundary, and no pass up to `form-kernels` has to
    know about devices. Constants that a host region needs are inside it. Without `split`, for a
    target that is the host itself, the attribute is only dropped.
    """

    name: ClassVar[str] = "form-host-regions"
    split: bool = True

    def run(self, module: ir.Module) -> None:
        main = main_function(module)
        operations = [op.operation for op in main.entry_block.operations]
        pinned = {op for op in operations if DEVICE.has(op)}
        if self.split and pinned:
            _refuse_control_flow(module, pinned)
            for number, ops in enumerate(_order(operations, pinned)):
                _outline(module, main, f"host_region_{number}", ops)
        else:
            for op in pinned:
                DEVICE.remove(op)


def _refuse_control_flow(module: ir.Module, pinned: set[Any]) -> None:
    controls = {name_of(f): f for f in control_functions(module)}
    for op in pinned:
        if is_call(op) and op.attributes["callee"].value in controls:
            raise UnsupportedOpError(
                "a loop, branch or called file is pinned to the host, in a program for a device",
                where=place_of(op.location),
                hint="leave nova.device('cpu') before it, or compile the program for the CPU",
            )


def host_regions(module: ir.Module) -> list[Any]:
    """The host regions of a module, in order."""
    return [f for f in functions(module) if DEVICE.has(f) and not is_kernel(f)]


def inline_host_regions(module: ir.Module, main: Any) -> None:
    """Replace every call of a host region in `main` by the ops of the region."""
    named = {region.name.value: region for region in host_regions(module)}
    for op in list(main.entry_block.operations):
        op = op.operation
        if op.name != "func.call" or op.attributes["callee"].value not in named:
            continue
        body = named[op.attributes["callee"].value].entry_block
        mapping = dict(zip(body.arguments, op.operands, strict=True))
        with ir.InsertionPoint(op):
            inner = [inside.operation for inside in body.operations]
            for inside in inner[:-1]:
                clone_into(inside, mapping)
        for result, value in zip(op.results, inner[-1].operands, strict=True):
            result.replace_all_uses_with(mapping.get(value, value))
        op.erase()
    for region in named.values():
        region.operation.erase()


def _order(operations: list[Any], pinned: set[Any]) -> list[list[Any]]:
    """Reorder the ops so that execution moves between host and device as rarely as possible.

    The host-pinned ops between two such moves are returned together.
    """
    returned = operations[-1]
    moved = [op for op in operations[:-1] if op.name != CONSTANT]
    phases = _phases(moved, pinned)
    first = _needed_next(moved, pinned, phases)
    for op in sorted(moved, key=lambda op: (phases[op], op not in first)):
        op.move_before(returned)
    hosts = sorted({phases[op] for op in pinned})
    return [[op for op in moved if phases[op] == phase] for phase in hosts]


def _phases(ops: list[Any], pinned: set[Any]) -> dict[Any, int]:
    """The phase in which each op runs: even ones are on the device, odd ones on the host.

    As few as possible. The device starts early, because it runs concurrently with the host. Ops
    that only a later host region needs, such as a transpose for the gradient, wait for it, to be
    fused there.
    """
    phases: dict[Any, int] = {}
    for op in ops:
        makers = [o.owner.operation for o in op.operands if isinstance(o, ir.OpResult)]
        first = max((phases[maker] for maker in makers if maker in phases), default=0)
        phases[op] = first + (first % 2 != (op in pinned))
    for op in reversed(ops):
        if op not in pinned:
            continue
        users = [use.owner.operation for result in op.results for use in result.uses]
        if users and all(user in phases for user in users):
            last = min(phases[user] for user in users)
            phases[op] = last - (last % 2 == 0)
    return phases


def _needed_next(ops: list[Any], pinned: set[Any], phases: dict[Any, int]) -> set[Any]:
    """The device ops that the next host region needs.

    They go first: the device runs the other ops of the phase concurrently with the host.
    """
    needed: set[Any] = set()
    for op in reversed(ops):
        users = {use.owner.operation for result in op.results for use in result.uses}
        if op not in pinned and any(
            (user in pinned and phases[user] == phases[op] + 1)
            or (user in needed and phases[user] == phases[op])
            for user in users
        ):
            needed.add(op)
    return needed


def _outline(module: ir.Module, main: Any, name: str, ops: list[Any]) -> None:
    """Outline consecutive ops as a function, and call it."""
    results_of_ops = {result for op in ops for result in op.results}
    captures = dict.fromkeys(o for op in ops for o in op.operands if o not in results_of_ops)
    constants = [v for v in captures if _is_constant(v)]
    inputs = [v for v in captures if v not in constants]
    inside = set(ops)
    results = [
        r for op in ops for r in op.results if any(u.owner.operation not in inside for u in r.uses)
    ]
    types = ([v.type for v in inputs], [r.type for r in results])
    location = ops[-1].location
    with ir.InsertionPoint(main), location:
        region = func.FuncOp(name, types, visibility="private")
        DEVICE.copy(ops[0], region)
        block = region.add_entry_block()
    mapping: dict[Any, Any] = dict(zip(inputs, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for value in constants:
            clone_into(value.owner.operation, mapping)
        for op in ops:
            DEVICE.remove(clone_into(op, mapping))
        with location:
            func.ReturnOp([mapping[r] for r in results])
    with ir.InsertionPoint(ops[-1]), location:
        call = func.CallOp(types[1], ir.FlatSymbolRefAttr.get(name), inputs)
    for old, new in zip(results, call.results, strict=True):
        old.replace_all_uses_with(new)
    for op in reversed(ops):
        op.erase()


def _is_constant(value: Any) -> bool:
    return isinstance(value, ir.OpResult) and value.owner.operation.name == CONSTANT
