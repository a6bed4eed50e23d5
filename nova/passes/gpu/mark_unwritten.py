"""`mark-unwritten`: finds the arguments of kernels that no launch before them writes."""

from __future__ import annotations

from typing import Any, ClassVar

from nova.core.records import record
from nova.ir.attributes import UNWRITTEN
from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root
from nova.ir.control_flow.functions import Control, host_functions, is_call, is_control, name_of
from nova.ir.kernel import Kernel, Main, is_kernel
from nova.ir.walk import functions_by_name, kernels, main_function
from nova.passes.base import Pass


@record
class MarkUnwritten(Pass):
    """Set `nova.unwritten` of a kernel to its arguments that have their values before the run.

    Those are weights and constants. A dependent launch may read them before `griddepcontrol.wait`:
    an access before the wait is safe if no launch of the program before this one writes the buffer,
    because all that came before the run has ended when the first launch of the run starts, and
    launches that write it later wait for this one. The proof, for every call of the kernel: the
    operand is a constant; or it is an argument of `main` that no call of `main` takes as a
    destination, and that is not updated (its new value may be written to the same memory); or it is
    an argument of `main` that is updated in place, by later calls only; or it is an argument of a
    region which is not a destination there either, and every loop or branch that runs the region
    passes such an argument of its own function, not as a carry or slice. The simulator checks it
    again, by addresses.
    """

    name: ClassVar[str] = "mark-unwritten"

    def run(self, module: ir.Module) -> None:
        named = functions_by_name(module)
        written = {name_of(f): _written(f, named) for f in host_functions(module)}
        safe = _find_safe(module, named, written)
        main = main_function(module)
        updated = _updated(main) & written[name_of(main)]
        always: dict[str, set[int]] = {}
        for function in host_functions(module):
            unwritten = safe.get(name_of(function), set())
            if name_of(function) == name_of(main):
                unwritten = unwritten | updated
            for call in _calls(function):
                callee = named[call.callee.value]
                unwritten = unwritten - _destinations(call, callee)
                if not is_kernel(callee):
                    continue
                operands = list(call.operation.operands)[: Kernel(callee).ins]
                numbers = {i for i, value in enumerate(operands) if _is_safe(value, unwritten)}
                always.setdefault(name_of(callee), numbers).intersection_update(numbers)
        for kernel in kernels(module):
            if arguments := always.get(kernel.name.value):
                UNWRITTEN.set(kernel, tuple(sorted(arguments)))


def _calls(function: Any) -> list[Any]:
    return [op for op in function.entry_block.operations if is_call(op.operation)]


def _written(function: Any, named: dict[str, Any]) -> set[Any]:
    """The roots of all buffers that the calls of a function take as destinations."""
    written: set[Any] = set()
    for call in _calls(function):
        written |= _destinations(call, named[call.callee.value])
    return written


def _destinations(call: Any, callee: Any) -> set[Any]:
    first = Kernel(callee).ins if is_kernel(callee) or is_control(callee) else 0
    return {buffer_root(value) for value in list(call.operation.operands)[first:]}


def _updated(main: Any) -> set[Any]:
    """The arguments of `main` that a run updates."""
    arguments = list(main.entry_block.arguments)
    return {arguments[i] for i in Main(main).updates}


def _find_safe(
    module: ir.Module, named: dict[str, Any], written: dict[str, set[Any]]
) -> dict[str, set[Any]]:
    """The arguments of `main` and of regions that hold the same values in a whole run."""
    main = main_function(module)
    start = set(main.entry_block.arguments) - _updated(main)
    safe = {name_of(main): start - written[name_of(main)]}
    # Regions come before the functions that run them.
    for function in reversed(list(host_functions(module))):
        inside = safe.get(name_of(function), set())
        for call in _calls(function):
            callee = named[call.callee.value]
            if not is_control(callee):
                continue
            control = Control.of(callee)
            for name in control.regions:
                passed = _passed(control, call, named[name], inside) - written[name]
                safe[name] = safe[name] & passed if name in safe else passed
    return safe


def _passed(control: Control, call: Any, region: Any, safe: set[Any]) -> set[Any]:
    """The arguments of a region that are `safe` values of the caller."""
    operands, arguments = list(call.operation.operands), list(region.entry_block.arguments)
    if control.construct == "for":
        pairs = list(zip(arguments[1:], operands[: control.consts], strict=False))
    elif control.construct == "while":
        pairs = list(zip(arguments, operands[1 : 1 + control.consts], strict=False))
    else:
        pairs = list(zip(arguments, operands[1:], strict=False))
    return {argument for argument, value in pairs if _is_safe(value, safe)}


def _is_safe(value: Any, safe: set[Any]) -> bool:
    root = buffer_root(value)
    if isinstance(root, ir.OpResult):
        return bool(root.owner.operation.name == "memref.get_global")
    return root in safe
