"""The CPU stages: lowers a module, at a stage up to `loops`, to LLVM IR, objects and tables.

`driver.py` creates a `HostCompile` for each CPU target. `gpu/backend.py` creates one for the
host-pinned kernels of a device program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from nova.artifact.elf.runtime_object import runtime_object
from nova.artifact.elf.shared_object import prepare_link
from nova.artifact.write import Variant
from nova.compiler.cpu.assembly import join_assembly
from nova.compiler.cpu.lower_units import UnitLowering, UnitPart, translate_module
from nova.compiler.cpu.soft_float import helper_unit
from nova.compiler.llvm.machine_code import (
    ASSEMBLY,
    OBJECT,
    LlvmJob,
    Unit,
    parse_units,
    print_units,
)
from nova.compiler.recorder import module_text
from nova.compiler.result import TargetCode
from nova.compiler.stages import CPU_STAGES, Code, CompileSession, TargetCompile
from nova.compiler.tables import read_tables, read_unpacked, require_loops
from nova.compiler.work_queue import Pending
from nova.core.settings import Settings
from nova.core.targets import llvm_cpu, parse_target
from nova.ir.bindings import ir
from nova.passes.base import Pass, run_verified_once

# The output of LLVM by the last stage; None is a compile of all stages.
_OUTPUTS = {"asm": ASSEMBLY, "object": OBJECT, None: OBJECT}
# The last stages of compiles that divide kernels into units.
_WITH_UNITS = (*_OUTPUTS, "ll")


class HostCompile(TargetCompile):
    """The compile for a CPU. Units of kernels go through `llvm`, `ll` and `object` one by one."""

    def __init__(
        self,
        module: ir.Module | None,
        settings: Settings,
        session: CompileSession,
        suffix: str | None = None,
    ):
        super().__init__(module, settings, session, suffix)
        self.target = parse_target(settings.target)
        self.variant: Variant | None = None
        self.units: list[Unit] = []
        self._jobs: list[Pending[bytes]] = []
        if module is not None:
            passes = CPU_STAGES["llvm"].passes
            assert passes is not None
            self._lowering = UnitLowering(module, passes(settings))

    def resume(self, text: str) -> None:
        """Use a text of the stage `ll`; `run` continues after it."""
        self.units = parse_units(text)

    def finish(self) -> TargetCode:
        """Wait for the objects of a compile of all stages."""
        variant = self.variant
        assert variant is not None
        if not variant.constants and not variant.unpacked:
            self.session.recorder.pack_texts()
        objects = self.wait()["object"].data
        assert isinstance(objects, tuple)
        return TargetCode(replace(variant, objects=objects))

    # --- units ----------------------------------------------------------------------------------

    def part_ready(self) -> None:
        if self.until in _WITH_UNITS:
            with self.clock.measure("llvm"):
                self._compile_parts(self._lowering.ready_parts())

    def lower(self, stage: str, passes: list[Pass]) -> None:
        if stage != "llvm" or self.until not in _WITH_UNITS:
            run_verified_once(self.module, passes, self.part_ready)
            self._lowering.put_back()
            return
        if self.until is None:
            require_loops(self.module)
        text = self.session.recorder.compact.get(f"loops{self.suffix}") or module_text(self.module)
        self._compile_parts(self._lowering.shared_parts(text))
        self._compile_parts(self._lowering.kernel_parts())
        if self.until is None:
            # Read while LLVM runs, and before `main` is erased.
            self.variant = self._read_variant()
        self._lowering.replace_functions()

    def _compile_parts(self, parts: Iterator[UnitPart]) -> None:
        """Take each part from `loops` through `llvm` and `ll` into the work queue."""
        for part in parts:
            lowered = self._lowering.lower(part)
            with self.clock.measure("ll"):
                self.units.append(lowered.translate())
            self._start_llvm()

    def _start_llvm(self) -> None:
        """Put the new units into the work queue, if the compile gets that far."""
        output = _OUTPUTS.get(self.until)
        if output is not None:
            for unit in self.units[len(self._jobs) :]:
                job = LlvmJob(unit, self.target, output)
                self._jobs.append(self.session.queue.submit(job.run))

    def _read_variant(self) -> Variant:
        """The program without its objects."""
        program = read_tables(self.module)
        cpu, options = llvm_cpu(self.target), self.settings.items()
        unpacked = read_unpacked(self.module)
        return Variant(
            self.target,
            cpu,
            (),
            program.tables,
            program.constants,
            options,
            unpacked,
            program.sizes,
        )

    # --- code stages ----------------------------------------------------------------------------

    def translate_units(self) -> str:
        """The stage `ll`: all units, which are already in the queue."""
        if not self.units and self.until is not None:
            # A text of the stage `llvm` has all kernels in one module.
            self.units.append(Unit(translate_module(self.module), unroll=False))
        return print_units(self.units)

    def emit_assembly(self) -> Callable[[], Code]:
        """The stage `asm`."""
        self._start_llvm()
        return self._wait_for_assembly

    def emit_objects(self) -> Callable[[], Code]:
        """The stage `object`."""
        self._start_llvm()
        if self.until is None:
            prepare_link(runtime_object(self.target.arch))  # overlaps with LLVM
        return self._wait_for_objects

    def _wait_for_assembly(self) -> Code:
        started = time.perf_counter()
        text = join_assembly([code.decode() for code in self._wait_for_units()])
        return Code(text, time.perf_counter() - started)

    def _wait_for_objects(self) -> Code:
        started = time.perf_counter()
        return Code(self._wait_for_units(), time.perf_counter() - started)

    def _wait_for_units(self) -> tuple[bytes, ...]:
        """The output of LLVM for every unit, and for the helper functions that they call."""
        code = tuple(job.result() for job in self._jobs)
        helpers = helper_unit(code)
        if helpers is None:
            return code
        output = _OUTPUTS[self.until]
        return (*code, LlvmJob(helpers, self.target, output).run())
