"""The GPU stages: lowers a module, at a stage up to `nvvm`, to tables and device images.

`driver.py` creates a `DeviceCompile` for each device target.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from nova.artifact.device_image import DeviceImage
from nova.artifact.write import Variant
from nova.compiler.cpu.backend import HostCompile
from nova.compiler.gpu.device_tables import read_device_tables
from nova.compiler.gpu.emit_ptx import compile_ptx, device_ir, join_ptx, split_kernels
from nova.compiler.gpu.fit_registers import fit_registers
from nova.compiler.hybrid.split import pinned_functions, split_pinned
from nova.compiler.result import TargetCode
from nova.compiler.stages import SHARED_STAGES, Code, CompileSession, TargetCompile
from nova.compiler.tables import Program
from nova.compiler.work_queue import Pending
from nova.core.records import record
from nova.core.settings import Settings
from nova.core.targets import Target, parse_target
from nova.errors import LoweringError
from nova.ir.bindings import ir
from nova.ir.diagnostics import place_of
from nova.ir.symbolic.size_table import SizeTable
from nova.ir.walk import main_function
from nova.passes.base import Pass


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
        text = self.session.recorder.compact.get(f"outlined{self.suffix}")
        if stage == "nvvm" and text is not None:
            passes = [step for step in passes if step.concerns(text)]
        super().lower(stage, passes)
        if stage == "outlined" and self.until is None:
            self._read_tables()

    def finish(self) -> TargetCode:
        """Wait for the device code of a compile of all stages."""
        assert self._tables is not None
        program = self._tables
        if not program.constants:
            self.session.recorder.pack_texts()
        codes = self.wait()
        images = [DeviceImage("ptx", self.target.cpu, _bytes(codes["ptx"]))]
        if "cubin" in codes:
            images.append(DeviceImage("cubin", self.target.cpu, _bytes(codes["cubin"])))
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
        self._tables = read_device_tables(self.module, host, self.settings.launch)

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
            if self.settings.launch == "persistent":
                ptx = fit_registers(ptx, self.target.cpu)
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
    from nova.artifact.cubins.ptxas import assemble  # only if cubins are requested

    started = time.perf_counter()
    image = (assemble(ptx, target.cpu).cubin,)
    return Code(image, time.perf_counter() - started)
