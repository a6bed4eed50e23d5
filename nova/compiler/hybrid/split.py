"""Splits hybrid programs for the host and the device compiler, and joins the results.

`split_pinned` moves the host-pinned kernels out of a module at the stage `buffers`. `join_host`
merges their launches in order with those of the device, inserts copies for values that are needed
in the other memory (`copies.py`). `gpu/backend.py` calls both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nova.artifact.tables import ALIGN, COPIES, BufferSpec, KernelSpec, LaunchSpec, Tables
from nova.artifact.write import Variant
from nova.compiler.hybrid.copies import Step, place_copies
from nova.errors import LoweringError
from nova.ir.attributes import DEVICE, INS
from nova.ir.bindings import func, ir
from nova.ir.clone import copy_module
from nova.ir.walk import functions, main_function


def pinned_functions(module: ir.Module) -> dict[str, Any]:
    """The host-pinned kernels, or their declarations after `split_pinned`, by name."""
    return {f.name.value: f for f in functions(module) if DEVICE.has(f)}


def split_pinned(module: ir.Module) -> ir.Module | None:
    """The host-pinned kernels in a separate module, with a main that calls them.

    In `module` they become declarations. None if there are none.
    """
    pinned = pinned_functions(module)
    if not pinned:
        return None
    host = copy_module(module)
    for op in list(main_function(host).entry_block.operations):
        if op.operation.name == "func.call" and op.callee.value not in pinned:
            op.operation.erase()
    for function in functions(host):
        if function.name.value not in pinned and function.name.value != "main":
            function.operation.erase()
    for function in pinned.values():
        _declare(function)
    return host


def _declare(function: Any) -> None:
    """Replace a function by its declaration."""
    with ir.InsertionPoint(function), function.location:
        declaration = func.FuncOp(function.name.value, function.type, visibility="private")
        for attribute in (DEVICE, INS):
            attribute.copy(function, declaration)
    function.operation.erase()


def join_host(
    tables: Tables, constants: bytes, steps: Sequence[Step], host: Variant
) -> tuple[Tables, bytes]:
    """The tables of the whole program, and its constants.

    `tables` has the kernels and buffers of the device, and `steps` are all calls in order. A value
    is copied as soon as it is available, so that no launch waits for more than it needs.
    """
    start = len(constants) + -len(constants) % ALIGN
    constants = constants.ljust(start, b"\0") + host.constants
    buffers = {buffer: number for number, buffer in enumerate(tables.buffers)}
    first_host = len(tables.kernels)
    first_copy = first_host + len(host.tables.kernels)

    def number(buffer: BufferSpec) -> int:
        return buffers.setdefault(buffer, len(buffers))

    def host_launch(launch: LaunchSpec) -> LaunchSpec:
        ids = []
        for index in launch.buffers:
            buffer = host.tables.buffers[index]
            shift = start if buffer.kind == "constant" else 0
            ids.append(number(replace(buffer, value=buffer.value + shift)))
        return LaunchSpec(first_host + launch.kernel, tuple(ids), launch.reads)

    calls = [step for step in steps if step.on_host or step.launch is not None]
    if len(host.tables.launches) != sum(step.on_host for step in calls):
        raise LoweringError("the two halves of the program do not have the same launches")
    copies = place_copies(calls)
    waiting = iter(host.tables.launches)
    launches: list[LaunchSpec] = []
    for position, step in enumerate((None, *calls), -1):
        if step is not None and step.on_host:
            launches.append(host_launch(next(waiting)))
        elif step is not None and step.launch is not None:
            launches.append(step.launch)
        for moved in copies.get(position, ()):
            launches.append(LaunchSpec(first_copy + (not moved.to_host), (number(moved.buffer),)))
    joined = replace(
        tables,
        kernels=(*tables.kernels, *host.tables.kernels, *map(_copy_spec, COPIES)),
        launches=tuple(launches),
        buffers=tuple(buffers),
        work=tables.work + host.tables.work,
        scratch_size=host.tables.scratch_size,
    )
    return joined, constants


def _copy_spec(core: str) -> KernelSpec:
    return KernelSpec(f"copy_{core}", "", 1, core, 0, 0, "")
