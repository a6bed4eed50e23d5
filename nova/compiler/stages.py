"""The stages of a compile: an ordered table, and one loop that runs, times, dumps and resumes them.

    plan -> nova -> linalg -> kernels -> buffers -> loops -> llvm -> ll -> object -> artifact

and for a device, from `buffers` on

    buffers -> device -> outlined -> nvvm -> ll -> ptx -> artifact

Each stage up to `ll` (`ptx`) has a textual form, which `Compiled.stages` keeps and `NOVA_DUMP=dir`
writes. A compile can start from the text of any of the MLIR stages. Stages from `loops` (`device`)
on depend on the target: with several targets each target has its own, named `loops@x86_64-v4`. If a
file is for CPUs and devices, the stages from `linalg` on run for each of the two, and are named
`linalg@cuda` for devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nova import knobs
from nova.compiler.dump import dump_stage
from nova.compiler.sandbox_child import report
from nova.compiler.signature import keep_signature
from nova.core.constants import Constants, StageTexts
from nova.core.log import Progress, log
from nova.core.settings import Settings
from nova.core.targets import parse_target
from nova.errors import PipelineError
from nova.ir.bindings import ir
from nova.ir.context import make_context, parse_module, verify_module
from nova.ir.emit import emit_module
from nova.ir.resources import constants_of
from nova.passes import pipelines
from nova.passes.base import Pass, run_verified_once
from nova.plan import Plan

# Stage -> the passes that lower the previous stage to it.
MLIR_STAGES: dict[str, Callable[[Settings], list[Pass]]] = {
    "nova": lambda s: [],
    "linalg": lambda s: pipelines.nova_to_linalg(),
    "kernels": lambda s: pipelines.linalg_to_kernels(s.serial_work, s.max_workspace),
    "buffers": lambda s: pipelines.kernels_to_buffers(s.max_workspace),
    "loops": lambda s: pipelines.buffers_to_loops(s.target, s.tile_work, s.task_ns, s.schedules),
    "llvm": lambda s: pipelines.loops_to_llvm(s.target, s.fast_math),
}
DEVICE_STAGES: dict[str, Callable[[Settings], list[Pass]]] = {
    "nova": lambda s: [],
    "linalg": lambda s: pipelines.nova_to_linalg(islands=True),
    "kernels": lambda s: pipelines.linalg_to_device_kernels(s.serial_work, s.max_workspace),
    "buffers": lambda s: pipelines.kernels_to_device_buffers(s.max_workspace),
    "device": lambda s: pipelines.buffers_to_device(s.target, s.tf32),
    "outlined": lambda s: pipelines.device_to_outlined(),
    "nvvm": lambda s: pipelines.outlined_to_nvvm(s.fast_math),
}
# The stages that are the same for every target of a kind.
SHARED_STAGES = ("nova", "linalg", "kernels", "buffers")


def stages_of(settings: Settings) -> dict[str, Callable[[Settings], list[Pass]]]:
    """The stages of the pipeline for the target of `settings`."""
    return DEVICE_STAGES if parse_target(settings.target).is_device else MLIR_STAGES


@dataclass
class Recorder:
    """The record of a compile: text, seconds and size of every stage.

    `name` is the folder of the program under `NOVA_DUMP` that gets the texts. They are kept
    `compact`, with the values of large constants in a table.
    """

    name: str = "program"
    compact: dict[str, str] = field(default_factory=dict)
    constants: Constants = field(default_factory=Constants)
    seconds: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def begin(self, stage: str) -> None:
        """Report the next stage."""

    def record(self, stage: str, text: str, seconds: float) -> None:
        """Keep the text of a stage, which may be compact."""
        self.compact[stage] = text
        if knobs.get("dump"):
            dump_stage(self.name, len(self.compact) - 1, stage, self.texts[stage])
        self.record_size(stage, len(text), seconds)

    def record_module(self, stage: str, module: ir.Module, seconds: float) -> None:
        """Keep a stage whose result is a module."""
        self.constants.update(constants_of(module.context))
        self.record(stage, module_text(module), seconds)

    def add_constants(self, stage: str, data: Mapping[str, bytes]) -> None:
        """Keep the values of large constants by digest; texts from `stage` on refer to them."""
        for digest, values in data.items():
            self.constants.add(values, digest)

    def record_size(self, stage: str, size: int, seconds: float) -> None:
        """Keep time and size of a stage; the results of the last stages are bytes."""
        self.seconds[stage] = seconds
        self.sizes[stage] = size
        log("compile", f"{stage}: {seconds * 1e3:.1f} ms, {size} bytes")

    @property
    def texts(self) -> StageTexts:
        """The full texts, in the order of the compile."""
        return StageTexts(self.compact, self.constants)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        return {s: {"seconds": t, "bytes": self.sizes[s]} for s, t in self.seconds.items()}


class ReportingRecorder(Recorder):
    """The recorder of a compile in a child process: it reports to the recorder of the caller."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def begin(self, stage: str) -> None:
        report("begin", stage)

    def record(self, stage: str, text: str, seconds: float) -> None:
        new = [digest for digest in self.constants if digest not in self._told]
        if new:
            self._told.update(new)
            report("add_constants", stage, {d: bytes(self.constants[d]) for d in new})
        self.compact[stage] = text
        report("record", stage, text, seconds)

    def record_size(self, stage: str, size: int, seconds: float) -> None:
        report("record_size", stage, size, seconds)


def follow(recorder: Recorder, bar: Progress) -> Callable[..., None]:
    """Apply a report of a `ReportingRecorder` in a child."""

    def see(word: str, stage: str, *values: Any) -> None:
        bar.advance(stage)
        getattr(recorder, word)(stage, *values)

    return see


def module_text(module: ir.Module) -> str:
    """The compact text of a module that the last pass has verified; printing would verify again.

    The values of large constants are in the recorder's table (`nova/core/constants.py`).
    """
    return module.operation.get_asm(assume_verified=True)


def start_from_plan(plan: Plan, recorder: Recorder) -> ir.Module:
    """The module at the `nova` stage."""
    started = time.perf_counter()
    module = emit_module(plan, make_context())
    with module.context, ir.Location.unknown():
        keep_signature(module)
    verify_module(module)
    recorder.record_module("nova", module, time.perf_counter() - started)
    return module


def start_from_text(text: str, filename: str) -> ir.Module:
    """Parse a module from the text of any MLIR stage."""
    return parse_module(text, filename, make_context())


def stages_between(after: str, until: str, settings: Settings | None = None) -> list[str]:
    """The names of the stages after `after`, up to and including `until`, of a target."""
    names = list(MLIR_STAGES if settings is None else stages_of(settings))
    for name in (after, until):
        if name not in names:
            raise PipelineError(f"no stage {name!r}", hint=f"the stages are {', '.join(names)}")
    return names[names.index(after) + 1 : names.index(until) + 1]


def run_stages(
    module: ir.Module,
    settings: Settings,
    recorder: Recorder,
    *,
    after: str = "nova",
    until: str | None = None,
    suffix: str = "",
    observe: Callable[[str, ir.Module], Any] | None = None,
    between: Callable[[], None] | None = None,
) -> None:
    """Lower `module` from the stage `after` through the MLIR stages up to `until`, in place.

    Without `until` all of them run. `suffix` is appended to the recorded stage names. `observe`
    gets the module after every stage; `between` is called when a pass has finished a part of it.
    """
    stages = stages_of(settings)
    elsewhere = 0.0

    def stop() -> None:
        nonlocal elsewhere
        if between is not None:
            stopped = time.perf_counter()
            between()
            elsewhere += time.perf_counter() - stopped

    for name in stages_between(after, until or list(stages)[-1], settings):
        started, elsewhere = time.perf_counter(), 0.0
        recorder.begin(name + suffix)
        run_verified_once(module, stages[name](settings), stop)
        if observe is not None:
            observe(name, module)
        seconds = time.perf_counter() - started - elsewhere
        recorder.record_module(name + suffix, module, seconds)
