"""The tables of a device program: launches, buffers and constants, also of loops and branches.

In: a module at the stage `outlined`, and the host-pinned kernels as a compiled variant. Out:
`Tables` and the bytes of the constants. `backend.py` calls `read_device_tables`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nova.artifact.tables import DeviceLaunch, KernelSpec, LaunchSpec, Tables, TensorMapSpec
from nova.artifact.write import Variant
from nova.compiler.hybrid.copies import Step
from nova.compiler.hybrid.split import join_host, pinned_functions
from nova.compiler.tables import Constants, HostReader, control_spec, location_text
from nova.core.records import record
from nova.errors import LoweringError
from nova.ir.attributes import FLOPS, TENSOR_MAPS
from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root, nbytes
from nova.ir.control_flow.functions import control_functions, host_functions, is_control
from nova.ir.diagnostics import place_of
from nova.ir.kernel import Kernel
from nova.ir.launches import read_launch
from nova.ir.tensor_maps import parse_row
from nova.ir.walk import find_ops, kernels
from nova.passes.kernels.plan_tasks import moved_bytes


def read_device_tables(module: ir.Module, host: Variant | None = None) -> tuple[Tables, bytes]:
    """The tables and constants of a module at the stage `outlined`.

    `host` has the host-pinned kernels. Its launches are merged in order with those of the device,
    with copies in between.
    """
    try:
        return _read(module, host)
    except KeyError:  # earlier stages set this attribute; the text is not from Nova
        raise LoweringError("the module is not of the stage outlined") from None


def _read(module: ir.Module, host: Variant | None) -> tuple[Tables, bytes]:
    pinned = pinned_functions(module)
    if pinned and host is None:
        raise LoweringError(
            f"@{next(iter(pinned))} is pinned to the host, and its code is not in the module",
            hint="start from the stage buffers",
        )
    hosts = list(host_functions(module))
    functions = {f.name.value: f for f in [*kernels(module), *control_functions(module)]} | pinned
    shared = _Shared(
        functions, pinned, {f.name.value: i for i, f in enumerate(hosts)}, Constants(module)
    )
    *regions, program = (_HostTables(module, f, shared, host) for f in hosts)
    tables = replace(program.tables(), regions=tuple(region.tables() for region in regions))
    constants = bytes(shared.constants.data)
    if host is None:
        return tables, constants
    return join_host(tables, constants, program.steps, host)


@record
class _Shared:
    """What the tables of a program and of its regions have in common."""

    functions: Mapping[str, Any]
    pinned: Mapping[str, Any]
    numbers: Mapping[str, int]
    """The number of the tables of each region."""
    constants: Constants


class _HostTables:
    """Reads the calls of `main`, or of the function of a region."""

    def __init__(self, module: ir.Module, function: Any, shared: _Shared, host: Variant | None):
        self.shared = shared
        self.has_host = host is not None
        self.reader = HostReader(module, function, shared.constants)
        self.specs: list[KernelSpec] = []
        self.launches: list[LaunchSpec] = []
        self.steps: list[Step] = []
        called = {op.attributes["callee"].value for op in find_ops(function, "func.call")}
        self.launch_of = {
            name: self._number(function)
            for name, function in shared.functions.items()
            if name in called
        }
        self._read_block(None)

    def tables(self) -> Tables:
        """The tables of these calls, without those of regions."""
        return Tables(
            buffers=tuple(self.reader.buffers),
            kernels=tuple(self.specs),
            launches=tuple(self.launches),
            workspace_size=self.reader.workspace_size,
            work=sum(self.specs[launch.kernel].flops for launch in self.launches),
        )

    def _number(self, function: Any) -> tuple[int, list[int]] | None:
        """The number of a kernel and the arguments that it gets; None for an empty grid."""
        if function.name.value in self.shared.pinned:
            return None
        if is_control(function):
            spec = replace(control_spec(function, self.shared.numbers), core="device", tiling=None)
            launch = spec, list(range(len(function.type.inputs)))
        elif (launch_or_none := _launch_of(function)) is None:
            return None
        else:
            launch = launch_or_none
        self.specs.append(launch[0])
        return len(self.specs) - 1, launch[1]

    def _read_block(self, block: Any) -> None:
        for call in self.reader.calls(block, loops=not self.has_host):
            if call.operation.name == "scf.while":
                self._read_loop(call)
                continue
            name = call.callee.value
            operands = list(call.operation.operands)
            function = self.shared.functions[name]
            launch = None
            if (numbered := self.launch_of[name]) is not None:
                number, order = numbered
                reads = Kernel(function).ins if is_control(function) else 0
                buffers = tuple(self.reader.buffer(operands[i]) for i in order)
                launch = LaunchSpec(number, buffers, reads)
                self.launches.append(launch)
            if self.has_host:
                inputs = Kernel(function).ins
                specs = [self.reader.spec(value) for value in operands]
                is_pinned = name in self.shared.pinned
                step = Step(is_pinned, launch, tuple(specs[:inputs]), tuple(specs[inputs:]))
                self.steps.append(step)

    def _read_loop(self, loop: Any) -> None:
        condition, body = _loop_of(loop)
        row = len(self.launches)
        self.launches.append(LaunchSpec(len(self.specs), (self.reader.buffer(condition),)))
        self.specs.append(_loop_spec(0, loop))
        self._read_block(body)
        self.specs[self.launches[row].kernel] = _loop_spec(len(self.launches) - row - 1, loop)


def _loop_of(loop: Any) -> tuple[Any, Any]:
    """The buffer of a loop's condition, and its body; both regions have no arguments."""
    before, after = (region.blocks[0] for region in loop.operation.regions)
    names = [op.operation.name for op in before.operations]
    *inside, last = [op.operation for op in after.operations]
    if names != ["memref.load", "scf.condition"] or len(before.operations[1].operands) != 1:
        raise LoweringError(
            "main contains scf.while whose condition is more than a load",
            where=place_of(loop.location),
        )
    load = before.operations[0].operation
    byte = nbytes(load.operands[0].type) == 1
    is_plain = len(load.operands) == 1 and byte and last.name == "scf.yield" and inside
    if not is_plain or len(last.operands) or len(loop.operation.results):
        raise LoweringError(
            "main contains scf.while that passes values on, or has no launches",
            where=place_of(loop.location),
        )
    return load.operands[0], after


def _loop_spec(launches: int, loop: Any) -> KernelSpec:
    location = location_text(loop.location)
    return KernelSpec(f"while_{launches}", "", launches, "while", 0, 0, location)


def _launch_of(function: Any) -> tuple[KernelSpec, list[int]] | None:
    """The kernel that a function launches, and which of its arguments it passes to the kernel."""
    launches = find_ops(function, "gpu.launch_func")
    if not launches:
        return None
    if len(launches) > 1:
        raise LoweringError(f"@{function.name.value} has {len(launches)} launches, not one")
    launch = read_launch(launches[0])
    position = {a: i for i, a in enumerate(function.entry_block.arguments)}
    roots = [buffer_root(value) for value in launch.operands]
    if foreign := [root for root in roots if root not in position]:
        producer = foreign[0].owner.operation.name
        raise LoweringError(
            f"@{function.name.value} launches a kernel on the result of {producer}",
            where=place_of(launches[0].location),
        )
    order = [position[root] for root in roots]
    maps = _tensor_maps(function, order)
    spec = KernelSpec(
        name=function.name.value,
        symbol=launch.symbols[1],
        grid=1,
        core="device",
        flops=_flops(function),
        bytes=moved_bytes(function),
        location=location_text(function.location),
        device=DeviceLaunch(launch.grid, launch.block, launch.shared, maps),
    )
    return spec, order


def _flops(function: Any) -> int:
    """The floating-point operations of a kernel; a hand-written launch has an estimate only."""
    flops = FLOPS.find(function)
    return Kernel(function).work if flops is None else flops


def _tensor_maps(function: Any, order: list[int]) -> tuple[TensorMapSpec, ...]:
    """The tensor maps of a kernel; `order` are the arguments that are operands of its launch."""
    specs = []
    for row in TENSOR_MAPS.find(function) or ():
        try:
            tensor = parse_row(row)
            operand = order.index(tensor.argument)
        except ValueError:
            raise LoweringError(
                f"{TENSOR_MAPS.name} of @{function.name.value} has {list(row)}, which is not a "
                "map of an operand of its launch",
                where=place_of(function.location),
            ) from None
        specs.append(
            TensorMapSpec(
                operand, tensor.offset, tensor.element, tensor.dims, tensor.strides, tensor.box
            )
        )
    return tuple(specs)
