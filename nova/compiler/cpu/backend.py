"""The host half of a compile: lowers a module at a stage up to `loops` to objects and tables.

`driver.py` calls `build_host` once for each CPU target. `gpu/backend.py` calls it for the
host-pinned kernels of a device program.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from nova import knobs
from nova.artifact.elf.runtime_object import runtime_object
from nova.artifact.elf.shared_object import prepare_link
from nova.artifact.write import Variant
from nova.compiler.cpu.llvm import Objects, Unit, compile_objects
from nova.compiler.cpu.soft_float import helper_unit
from nova.compiler.cpu.units import UnitLowering
from nova.compiler.session import CompileSession, TargetCode
from nova.compiler.stages import module_text, stages_of
from nova.compiler.tables import read_tables, read_unpacked
from nova.core.settings import Settings
from nova.core.targets import llvm_cpu, parse_target
from nova.ir.bindings import ir


def build_host(
    module: ir.Module,
    settings: Settings,
    session: CompileSession,
    after: str,
    suffix: str | None = None,
) -> TargetCode:
    """Compile `module`, at the stage `after`, for the CPU that `settings` name.

    `suffix` is appended to stage names; the default is the target.
    """
    target = parse_target(settings.target)
    recorder = session.recorder
    suffix = session.suffix(settings) if suffix is None else suffix
    way = UnitLowering(module, stages_of(settings)["llvm"](settings))
    texts: list[str] = []
    with Objects(target, knobs.get("threads")) as objects:

        def begin(units: Iterable[Unit]) -> None:
            for unit in units:
                texts.append(unit.text)
                objects.begin(unit)

        if after != "loops":
            session.run(
                module,
                settings,
                after,
                until="loops",
                suffix=suffix,
                between=lambda: begin(way.written()),
            )
        text = module_text(module) if after == "loops" else recorder.compact[f"loops{suffix}"]
        begin(way.shared(text))
        # Read while LLVM runs, and before `main` is erased.
        tables, constants = read_tables(module)
        unpacked = read_unpacked(module)
        begin(way.kernels())
        recorder.record_module(f"llvm{suffix}", module, way.lowering)
        recorder.record(f"ll{suffix}", "\n".join(texts), way.translating)
        session.advance(f"object{suffix}")
        started = time.perf_counter()
        prepare_link(runtime_object(target.arch))  # overlaps with LLVM
        code = tuple(objects.finish())
        if (helpers := helper_unit(code)) is not None:
            code += tuple(compile_objects([helpers], target, 1))
    recorder.record_size(f"object{suffix}", sum(map(len, code)), time.perf_counter() - started)
    options = settings.items()
    return TargetCode(Variant(target, llvm_cpu(target), code, tables, constants, options, unpacked))
