"""The GPU stages: lowers a module, at a stage up to `nvvm`, to tables and device images.

`driver.py` creates a `DeviceCompile` for each device target.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from nova.artifact.device_image import DeviceImage
from nova.artifact.symbolic import SIZE_BYTES, Placeholders
from nova.artifact.tables import (
    BufferSpec,
    DeviceLaunch,
    KernelSpec,
    LaunchSpec,
    Tables,
    TensorMapSpec,
)
from nova.artifact.write import Variant
from nova.codegen.common.size_loads import symbolic_numbers
from nova.compiler.cpu.backend import HostCompile
from nova.compiler.gpu.emit_ptx import compile_ptx, device_ir, join_ptx, split_kernels
from nova.compiler.hybrid.copies import Step
from nova.compiler.hybrid.split import join_host, pinned_functions, split_pinned
from nova.compiler.result import TargetCode
from nova.compiler.stages import SHARED_STAGES, Code, CompileSession, TargetCompile
from nova.compiler.symbolic_tables import read_sizes
from nova.compiler.tables import HostReader, Program, location_text
from nova.compiler.work_queue import Pending
from nova.core.records import record
from nova.core.settings import Settings
from nova.core.sizes import Size
from nova.core.targets import Target, parse_target
from nova.errors import LoweringError
from nova.ir.attributes import FLOPS, SIZE_VALUES, TENSOR_MAPS
from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root, nbytes
from nova.ir.diagnostics import place_of
from nova.ir.kernel import Kernel
from nova.ir.launches import find_constant, read_launch
from nova.ir.symbolic.size_table import SizeTable
from nova.ir.tensor_maps import parse_row
from nova.ir.walk import find_function, find_ops, kernels, main_function
from nova.passes.base import Pass
from nova.passes.kernels.plan_tasks import moved_bytes


class DeviceCompile(TargetCompile):
    """The compile for a GPU. Host-pinned kernels are compiled first, for the host's CPU."""

    def __init__(
        self,
        module: ir.Module | None,
        settings: Settings,
        session: CompileSession,
        suffix: str | None = None,
    ):
        super().__init__(module, settings, session, suffix)
        self.target = parse_target(settings.target)
        self._host: HostCompile | None = None
        self._tables: Program | None = None
        self._text = ""
        self._jobs: list[Pending[Code]] = []
        self._code: _DeviceCode | None = None
        self._cubin = False

    def resume(self, text: str) -> None:
        """Use a text of the stage `ll`; `run` continues after it."""
        self._text = text

    def run(self, after: str, until: str | None = None) -> None:
        if until is None:
            if after == SHARED_STAGES[-1]:
                self._host = self._compile_pinned()
            if after == "outlined":
                self._read_tables()
        super().run(after, until)

    def lower(self, stage: str, passes: list[Pass]) -> None:
        super().lower(stage, passes)
        if stage == "outlined" and self.until is None:
            self._read_tables()

    def finish(self) -> TargetCode:
        """Wait for the device code of a compile of all stages."""
        codes = self.wait()
        images = [DeviceImage("ptx", self.target.cpu, _bytes(codes["ptx"]))]
        if "cubin" in codes:
            images.append(DeviceImage("cubin", self.target.cpu, _bytes(codes["cubin"])))
        assert self._tables is not None
        program = self._tables
        host = None if self._host is None else self._host.finish().variant
        objects, unpacked = ((), b"") if host is None else (host.objects, host.unpacked)
        options = self.settings.items()
        variant = Variant(
            self.target,
            self.target.cpu,
            objects,
            program.tables,
            program.constants,
            options,
            unpacked,
            program.sizes,
        )
        return TargetCode(variant, tuple(images))

    def _compile_pinned(self) -> HostCompile | None:
        """Compile the host-pinned kernels and remove them from the module; None without any.

        They are compiled for the baseline CPU of the architecture: any host of the device can run
        them.
        """
        functions = pinned_functions(self.module)
        if functions and SizeTable.of(main_function(self.module)) is not None:
            name, function = next(iter(functions.items()))
            raise LoweringError(
                f"@{name} runs on the host, in a program for a device with symbolic sizes",
                where=place_of(function.location),
                hint="keep its sizes static, or compile the program for the CPU",
            )
        pinned = split_pinned(self.module)
        if pinned is None:
            return None
        settings = replace(self.settings, target=self.session.host, schedules=())
        suffix = f"@{self.session.host}{self.session.suffix(self.settings)}"
        host = HostCompile(pinned, settings, self.session, suffix)
        host.run(SHARED_STAGES[-1])
        return host

    def _read_tables(self) -> None:
        host = None if self._host is None else self._host.variant
        self._tables = read_device_tables(self.module, host)

    # --- code stages ----------------------------------------------------------------------------

    def translate_kernels(self) -> str:
        """The stage `ll`."""
        self._text = device_ir(self.module)
        return self._text

    def emit_ptx(self) -> Callable[[], Code]:
        """The stage `ptx`, and `cubin` if it follows: the queue compiles the kernels in parts."""
        self._cubin = self.settings.cubin if self.until is None else self.until == "cubin"
        self._jobs = [
            self.session.queue.submit(partial(_compile, part, self.target))
            for part in split_kernels(self._text)
        ]
        return lambda: self._wait().ptx

    def emit_cubin(self) -> Callable[[], Code]:
        """The stage `cubin`."""
        return lambda: self._wait().cubin

    def _wait(self) -> _DeviceCode:
        if self._code is None:
            parts = [job.result() for job in self._jobs]
            ptx = join_ptx([str(part.data) for part in parts])
            seconds = sum(part.seconds for part in parts)
            cubin = _assemble(ptx, self.target) if self._cubin else Code((), 0.0)
            self._code = _DeviceCode(Code(ptx, seconds), cubin)
        return self._code


@record
class _DeviceCode:
    """Device code; the cubin is empty if it is not requested."""

    ptx: Code
    cubin: Code


def _bytes(code: Code) -> bytes:
    return code.data.encode() if isinstance(code.data, str) else b"".join(code.data)


def _compile(text: str, target: Target) -> Code:
    started = time.perf_counter()
    ptx = compile_ptx(text, target)
    return Code(ptx, time.perf_counter() - started)


def _assemble(ptx: str, target: Target) -> Code:
    from nova.compiler.gpu.ptxas import assemble  # only if cubins are requested

    started = time.perf_counter()
    image = (assemble(ptx, target.cpu).cubin,)
    return Code(image, time.perf_counter() - started)


def read_device_tables(module: ir.Module, host: Variant | None = None) -> Program:
    """The tables, constants and symbolic sizes of a module at the stage `outlined`.

    `host` has the host-pinned kernels. Its launches are merged in order with those of the device,
    with copies in between.
    """
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
    reader = HostReader(module, sizes=sizes)
    pinned = pinned_functions(module)
    if pinned and host is None:
        raise LoweringError(
            f"@{next(iter(pinned))} is pinned to the host, and its code is not in the module",
            hint="start from the stage buffers",
        )
    functions = {f.name.value: f for f in kernels(module)} | pinned
    specs: list[KernelSpec] = []
    launch_of: dict[str, tuple[int, list[_Parameter]] | None] = {}
    work: dict[int, Size] = {}
    for name, function in functions.items():
        launch = None if name in pinned else _launch_of(function, sizes)
        if launch is not None:
            work[len(specs)] = launch[2]
        launch_of[name] = None if launch is None else (len(specs), launch[1])
        if launch is not None:
            specs.append(launch[0])
    launches: list[LaunchSpec] = []
    steps: list[Step] = []

    def read_block(block: Any = None) -> None:
        for call in reader.calls(block, loops=host is None):
            if call.operation.name == "scf.while":
                condition, body = _loop_of(call)
                row = len(launches)
                launches.append(LaunchSpec(len(specs), (reader.buffer(condition),)))
                specs.append(_loop_spec(0, call))
                read_block(body)
                specs[launches[row].kernel] = _loop_spec(len(launches) - row - 1, call)
                continue
            name = call.callee.value
            operands = list(call.operation.operands)
            launch = None
            if (numbered := launch_of[name]) is not None:  # None: an empty grid
                number, order = numbered
                buffers = tuple(_buffer_of(reader, operands, parameter) for parameter in order)
                launch = LaunchSpec(number, buffers, 0)
                launches.append(launch)
            if host is not None:
                inputs = Kernel(functions[name]).ins
                specs_of = [reader.spec(value) for value in operands]
                reads, writes = tuple(specs_of[:inputs]), tuple(specs_of[inputs:])
                steps.append(Step(name in pinned, launch, reads, writes))

    read_block()
    tables = Tables(
        buffers=tuple(reader.buffers),
        kernels=tuple(specs),
        launches=tuple(launches),
        workspace_size=reader.workspace_size,
        work=_placed(sum(work.get(launch.kernel, 0) for launch in launches), sizes),
        tasks=(),
        scratch_size=0,
    )
    constants = bytes(reader.constants)
    if host is not None:
        tables, constants = join_host(tables, constants, steps, host)
    return Program(tables, constants)


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
    maps = _tensor_maps(function, [p.number for p in parameters if not p.is_size])
    flops = _flops(function) if flops is None else flops
    grid = launch.grid
    if sizes is not None and blocks is not None:
        grid = sizes.short(blocks), 1, 1
    spec = KernelSpec(
        name=function.name.value,
        symbol=launch.symbols[1],
        grid=1,
        core="device",
        flops=_placed(flops, sizes),
        bytes=moved_bytes(function) if moved is None else _placed(moved, sizes),
        location=location_text(function.location),
        device=DeviceLaunch(grid, launch.block, launch.shared, maps),
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
