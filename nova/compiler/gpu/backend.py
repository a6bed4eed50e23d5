"""The device half of a compile: lowers a module at a stage up to `nvvm` to tables and images.

`driver.py` calls `begin_device` once for each device target.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nova.artifact.device_image import DeviceImage
from nova.artifact.tables import DeviceLaunch, KernelSpec, LaunchSpec, Tables
from nova.artifact.write import Variant
from nova.compiler.cpu.backend import build_host
from nova.compiler.gpu.ptx import compile_ptx, device_ir
from nova.compiler.hybrid.copies import Step
from nova.compiler.hybrid.split import join_host, pinned_functions, split_pinned
from nova.compiler.session import CompileSession, TargetCode
from nova.compiler.stages import SHARED_STAGES
from nova.compiler.tables import HostReader, location_text
from nova.core.settings import Settings
from nova.core.targets import parse_target
from nova.errors import LoweringError
from nova.ir.bindings import ir
from nova.ir.buffers import buffer_root, nbytes
from nova.ir.diagnostics import place_of
from nova.ir.kernel import Kernel
from nova.ir.launches import read_launch
from nova.ir.walk import find_ops, kernels
from nova.passes.kernels.plan_tasks import moved_bytes


def begin_device(
    module: ir.Module, settings: Settings, session: CompileSession, after: str
) -> Callable[[], TargetCode]:
    """Compile `module`, at the stage `after`, for the device target of `settings`.

    The MLIR stages run now. LLVM and the assembler start, and run concurrently with the caller. The
    result waits for them.
    """
    suffix = session.suffix(settings)
    found: list[tuple[Tables, bytes]] = []
    host = _build_pinned(module, settings, session) if after == SHARED_STAGES[-1] else None

    def read(stage: str, module: ir.Module) -> None:
        if stage == "outlined":
            found.append(read_device_tables(module, host))

    read(after, module)
    session.run(module, settings, after, suffix=suffix, observe=read)
    started = time.perf_counter()
    text = device_ir(module)
    session.recorder.record(f"ll{suffix}", text, time.perf_counter() - started)
    session.advance(f"ptx{suffix}")
    waiting = session.start(partial(_compile, text, settings))

    def finish() -> TargetCode:
        code = waiting()
        session.recorder.record(f"ptx{suffix}", code.ptx, code.ptx_seconds)
        target = parse_target(settings.target)
        images = [DeviceImage("ptx", target.cpu, code.ptx.encode())]
        if code.cubin is not None:
            session.recorder.record_size(f"cubin{suffix}", len(code.cubin), code.cubin_seconds)
            images.append(DeviceImage("cubin", target.cpu, code.cubin))
        tables, constants = found[0]
        objects, unpacked = (host.objects, host.unpacked) if host is not None else ((), b"")
        options = settings.items()
        variant = Variant(target, target.cpu, objects, tables, constants, options, unpacked)
        return TargetCode(variant, tuple(images))

    return finish


def _build_pinned(module: ir.Module, settings: Settings, session: CompileSession) -> Variant | None:
    """Compile the host-pinned kernels and remove them from `module`; None if there are none.

    They are compiled for the baseline CPU of the architecture: any host of the device can run them.
    """
    pinned = split_pinned(module)
    if pinned is None:
        return None
    own = replace(settings, target=session.host, schedules=())
    suffix = f"@{session.host}{session.suffix(settings)}"
    return build_host(pinned, own, session, SHARED_STAGES[-1], suffix).variant


@dataclass(frozen=True)
class _Code:
    """Device code, and the seconds to compile it."""

    ptx: str
    ptx_seconds: float
    cubin: bytes | None
    cubin_seconds: float


def _compile(text: str, settings: Settings) -> _Code:
    started = time.perf_counter()
    target = parse_target(settings.target)
    ptx = compile_ptx(text, target)
    between = time.perf_counter()
    cubin = None
    if settings.cubin:
        from nova.compiler.gpu.ptxas import assemble  # only if cubins are requested

        cubin = assemble(ptx, target.cpu).cubin
    return _Code(ptx, between - started, cubin, time.perf_counter() - between)


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
    reader = HostReader(module)
    pinned = pinned_functions(module)
    if pinned and host is None:
        raise LoweringError(
            f"@{next(iter(pinned))} is pinned to the host, and its code is not in the module",
            hint="start from the stage buffers",
        )
    functions = {f.name.value: f for f in kernels(module)} | pinned
    specs: list[KernelSpec] = []
    known: dict[str, tuple[int, list[int]] | None] = {}
    for name, function in functions.items():
        found = None if name in pinned else _launch_of(function)
        known[name] = None if found is None else (len(specs), found[1])
        if found is not None:
            specs.append(found[0])
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
            if (place := known[name]) is not None:  # None: an empty grid
                number, order = place
                launch = LaunchSpec(number, tuple(reader.buffer(operands[i]) for i in order), 0)
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
        work=sum(specs[launch.kernel].flops for launch in launches),
        tasks=(),
        scratch_size=0,
    )
    constants = bytes(reader.constants)
    return (tables, constants) if host is None else join_host(tables, constants, steps, host)


def _loop_of(loop: Any) -> tuple[Any, Any]:
    """The buffer of a loop's condition, and its body; both regions have no arguments."""
    before, after = (region.blocks[0] for region in loop.operation.regions)
    names = [op.operation.name for op in before.operations]
    *inside, last = [op.operation for op in after.operations]
    if names != ["memref.load", "scf.condition"] or len(before.operations[1].operands) != 1:
        raise LoweringError(
            "main holds scf.while whose condition is more than a load",
            where=place_of(loop.location),
        )
    load = before.operations[0].operation
    byte = nbytes(load.operands[0].type) == 1
    is_plain = len(load.operands) == 1 and byte and last.name == "scf.yield" and inside
    if not is_plain or len(last.operands) or len(loop.operation.results):
        raise LoweringError(
            "main holds scf.while that hands on values, or has no launches",
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
    spec = KernelSpec(
        name=function.name.value,
        symbol=launch.symbols[1],
        grid=1,
        core="device",
        flops=Kernel(function).work,
        bytes=moved_bytes(function),
        location=location_text(function.location),
        device=DeviceLaunch(launch.grid, launch.block, launch.shared),
    )
    roots = [buffer_root(value) for value in launch.operands]
    if foreign := [root for root in roots if root not in position]:
        what = foreign[0].owner.operation.name
        raise LoweringError(
            f"@{function.name.value} launches a kernel on the result of {what}",
            where=place_of(launches[0].location),
        )
    return spec, [position[root] for root in roots]
