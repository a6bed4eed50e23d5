"""The tables of a device program: launches, buffers and constants, also of loops and branches.

In: a module at the stage `outlined`, and the host-pinned kernels as a compiled variant. Out:
a `Program`: tables, constants and symbolic sizes. `backend.py` calls `read_device_tables`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from nova.artifact.device_launch import DeviceLaunch, TensorMapSpec
from nova.artifact.symbolic import SIZE_BYTES, Placeholders
from nova.artifact.tables import BufferSpec, KernelSpec, LaunchSpec, Tables
from nova.artifact.tilings import DEVICE_TASK_NS, OperandRange, Tiling
from nova.artifact.write import Variant
from nova.codegen.common.footprint import load_footprint
from nova.codegen.common.size_loads import symbolic_numbers
from nova.codegen.gpu.persistent.kernel import FLOW_KERNEL, PERSISTENT_KERNEL
from nova.codegen.gpu.persistent.task import TASK_THREADS
from nova.compiler.hybrid.copies import Step
from nova.compiler.hybrid.split import join_host, pinned_functions
from nova.compiler.symbolic_tables import control_work, read_sizes
from nova.compiler.tables import Constants, HostReader, Program, control_spec, location_text
from nova.core.records import record
from nova.core.sizes import Size
from nova.errors import LoweringError, PersistentLaunchError
from nova.ir.attributes import CORE, DEPENDENT, FLOPS, INS, SIZE_VALUES, TENSOR_MAPS, WRITES
from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root, nbytes
from nova.ir.control_flow.functions import control_functions, host_functions, is_control
from nova.ir.diagnostics import place_of
from nova.ir.kernel import Kernel
from nova.ir.launches import (
    check_persistent,
    find_constant,
    has_flow,
    persistent_launches,
    read_launch,
)
from nova.ir.symbolic.size_table import SizeTable, decoded
from nova.ir.tensor_maps import parse_row
from nova.ir.walk import find_function, find_ops, kernels
from nova.passes.kernels.plan_tasks import moved_bytes


def read_device_tables(
    module: ir.Module, host: Variant | None = None, launch: str = "graph"
) -> Program:
    """The tables, constants and symbolic sizes of a module at the stage `outlined`.

    `host` has the host-pinned kernels. Its launches are merged in order with those of the device,
    with copies in between. With `launch` "persistent" the last kernel is the one that runs the
    tasks of all others.
    """
    if launch == "persistent":
        if host is not None:
            raise PersistentLaunchError(
                "kernels on the host cannot run in a program with launch='persistent'",
                hint="compile the program with launch='graph'",
            )
        program = read_device_tables(module)
        kernels = (*program.tables.kernels, _persistent_spec(module))
        return replace(program, tables=replace(program.tables, kernels=kernels))
    try:
        main = find_function(module, "main")
        table = None if main is None else SizeTable.of(main)
        if main is None or table is None:
            return _read(module, host, None)
        sizes = Placeholders(SIZE_VALUES.get(main))
        with table.active():
            program = _read(module, None, sizes)
            return replace(program, sizes=read_sizes(main, sizes))
    except KeyError:  # earlier stages set this attribute; the text is not from Nova
        raise LoweringError("the module is not of the stage outlined") from None


def _read(module: ir.Module, host: Variant | None, sizes: Placeholders | None) -> Program:
    pinned = pinned_functions(module)
    if pinned and host is None:
        raise LoweringError(
            f"@{next(iter(pinned))} is pinned to the host, and its code is not in the module",
            hint="start from the stage buffers",
        )
    hosts = list(host_functions(module))
    functions = {f.name.value: f for f in [*kernels(module), *control_functions(module)]} | pinned
    shared = _Shared(
        functions,
        pinned,
        {f.name.value: i for i, f in enumerate(hosts)},
        Constants(module),
        sizes,
    )
    *regions, program = (_HostTables(module, f, shared, host) for f in hosts)
    tables = replace(program.tables(), regions=tuple(region.tables() for region in regions))
    constants = bytes(shared.constants.data)
    if host is not None:
        tables, constants = join_host(tables, constants, program.steps, host)
    return Program(tables, constants)


@record
class _Shared:
    """What the tables of a program and of its regions have in common."""

    functions: Mapping[str, Any]
    pinned: Mapping[str, Any]
    numbers: Mapping[str, int]
    """The number of the tables of each region."""
    constants: Constants
    sizes: Placeholders | None


class _HostTables:
    """Reads the calls of `main`, or of the function of a region."""

    def __init__(self, module: ir.Module, function: Any, shared: _Shared, host: Variant | None):
        self.shared = shared
        self.has_host = host is not None
        self.reader = HostReader(module, function, shared.constants, shared.sizes)
        self.specs: list[KernelSpec] = []
        self.work: list[Size] = []
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
            work=_placed(
                sum(self.work[launch.kernel] for launch in self.launches), self.shared.sizes
            ),
        )

    def _number(self, function: Any) -> tuple[int, list[_Parameter]] | None:
        """The number of a kernel and the parameters that it gets; None for an empty grid."""
        if function.name.value in self.shared.pinned:
            return None
        if is_control(function):
            sizes = self.shared.sizes
            spec = control_spec(function, self.shared.numbers, sizes)
            spec = replace(spec, core="device", tiling=None)
            work: Size = spec.flops if sizes is None else control_work(function)
            parameters: list[_Parameter] = []  # its operands are those of its calls
        else:
            launch = _launch_of(function, self.shared.sizes)
            if launch is None:
                return None
            spec, parameters, work = launch
        self._add_spec(spec, work)
        return len(self.specs) - 1, parameters

    def _add_spec(self, spec: KernelSpec, work: Size) -> None:
        self.specs.append(spec)
        self.work.append(work)

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
                if is_control(function):
                    launch = LaunchSpec(number, self.reader.operands(call), Kernel(function).ins)
                else:
                    buffers = (_buffer_of(self.reader, operands, parameter) for parameter in order)
                    launch = LaunchSpec(number, tuple(buffers), _count_reads(function, order))
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
        self._add_spec(_loop_spec(0, loop), 0)
        self._read_block(body)
        self.specs[self.launches[row].kernel] = _loop_spec(len(self.launches) - row - 1, loop)


def _persistent_spec(module: ir.Module) -> KernelSpec:
    """The kernel of `link-persistent-kernel`; the runtime chooses the blocks of its launch."""
    check_persistent(module)
    shared = max((launch.shared for launch in persistent_launches(module)), default=0)
    name = FLOW_KERNEL if has_flow(module) else PERSISTENT_KERNEL
    return KernelSpec(
        name=name,
        symbol=name,
        grid=1,
        core="device",
        flops=0,
        bytes=0,
        location="",
        device=DeviceLaunch((1, 1, 1), (TASK_THREADS, 1, 1), shared, ()),
    )


def _placed(size: Size, sizes: Placeholders | None) -> int:
    """A number of the tables: a placeholder for one that depends on symbolic sizes."""
    if sizes is not None:
        return sizes.of(size)
    assert isinstance(size, int)
    return size


@record
class _Parameter:
    """A parameter of a device function: an argument of the kernel, or the value of a size."""

    number: int
    is_size: bool = False


def _buffer_of(reader: HostReader, operands: list[Any], parameter: _Parameter) -> int:
    """The number of the buffer that a call with `operands` passes for a parameter."""
    if parameter.is_size:
        return reader.add(BufferSpec("sizes", parameter.number * SIZE_BYTES, SIZE_BYTES))
    return reader.buffer(operands[parameter.number])


def _count_reads(function: Any, parameters: list[_Parameter]) -> int:
    """The parameters before the first one that the kernel writes: those after `nova.ins`."""
    ins = INS.find(function)
    if ins is None:  # a launch that was written by hand does not say what it writes
        return 0
    writes = (i for i, p in enumerate(parameters) if not p.is_size and p.number >= ins)
    return next(writes, len(parameters))


def _tiling(function: Any, parameters: list[_Parameter], blocks: int) -> Tiling | None:
    """The tiles of a launch, one for each block; None where the kernel does not say them."""
    if not WRITES.has(function):
        return None
    footprint = load_footprint(function)
    if footprint.tiles != blocks:
        return None
    operands: dict[int, int] = {}
    for operand, parameter in enumerate(parameters):
        operands.setdefault(parameter.number, operand)
    ranges = tuple(
        OperandRange(operands[number], writes, r.low, r.high, r.strides)
        for writes, arguments in ((False, footprint.reads), (True, footprint.writes))
        for number, byte_ranges in enumerate(arguments)
        if number in operands
        for r in byte_ranges
    )
    return Tiling(footprint.grid, footprint.tile, ranges, DEVICE_TASK_NS)


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


def _launch_of(
    function: Any, sizes: Placeholders | None
) -> tuple[KernelSpec, list[_Parameter], Size] | None:
    """The kernel that a function launches, the parameters it passes, and its flops."""
    launches = find_ops(function, "gpu.launch_func")
    if not launches:
        return None
    if len(launches) > 1:
        raise LoweringError(f"@{function.name.value} has {len(launches)} launches, not one")
    blocks = flops = moved = None
    if sizes is not None:
        numbers = (symbolic_numbers(function, name)[0] for name in ("blocks", "flops", "bytes"))
        blocks, flops, moved = numbers
    launch = read_launch(launches[0], None if blocks is None else 1)
    arguments = list(function.entry_block.arguments)
    parameters = [_parameter(function, value, arguments) for value in launch.operands]
    maps = _tensor_maps(function, parameters, sizes)
    flops = _flops(function) if flops is None else flops
    grid = launch.grid
    tiling = None
    if sizes is not None and blocks is not None:
        grid = sizes.short(blocks), 1, 1
    else:
        tiling = _tiling(function, parameters, prod(grid))
    spec = KernelSpec(
        name=function.name.value,
        symbol=launch.symbols[1],
        grid=1 if tiling is None else tiling.tiles,
        core="device",
        flops=_placed(flops, sizes),
        bytes=moved_bytes(function) if moved is None else _placed(moved, sizes),
        location=location_text(function.location),
        device=DeviceLaunch(
            grid,
            launch.block,
            launch.shared,
            maps,
            core=CORE.find(function) or "vector",
            dependent=DEPENDENT.has(function),
        ),
        tiling=tiling,
    )
    return spec, parameters, flops


def _parameter(function: Any, value: Any, arguments: list[Any]) -> _Parameter:
    """The parameter of a launch that is `value`: a buffer, or a size that is loaded before it."""
    root = buffer_root(value)
    if root in arguments:
        return _Parameter(arguments.index(root))
    op = root.owner.operation
    if op.name == "memref.load" and op.operands[0] in arguments:
        number = find_constant(op.operands[1]) if len(op.operands) == 2 else None
        if number is not None and isinstance(value.type, ir.IndexType):
            return _Parameter(number, True)
    raise LoweringError(
        f"@{function.name.value} launches a kernel on the result of {op.name}",
        where=place_of(function.location),
    )


def _decoded(numbers: tuple[int, ...], sizes: Placeholders | None) -> tuple[int, ...]:
    """Numbers of the IR in the tables: placeholders for representatives of symbolic sizes."""
    return numbers if sizes is None else tuple(map(sizes.of, decoded(numbers)))


def _flops(function: Any) -> int:
    """The floating-point operations of a kernel; a hand-written launch has an estimate only."""
    flops = FLOPS.find(function)
    return Kernel(function).work if flops is None else flops


def _tensor_maps(
    function: Any, parameters: list[_Parameter], sizes: Placeholders | None
) -> tuple[TensorMapSpec, ...]:
    """The tensor maps of a kernel, whose launch has these operands."""
    specs = []
    for row in TENSOR_MAPS.find(function) or ():
        try:
            tensor = parse_row(row)
            operand = parameters.index(_Parameter(tensor.argument))
        except ValueError:
            raise LoweringError(
                f"{TENSOR_MAPS.name} of @{function.name.value} has {list(row)}, which is not a "
                "map of an operand of its launch",
                where=place_of(function.location),
            ) from None
        specs.append(
            TensorMapSpec(
                operand,
                tensor.offset,
                tensor.element,
                _decoded(tensor.dims, sizes),
                _decoded(tensor.strides, sizes),
                tensor.box,
            )
        )
    return tuple(specs)
