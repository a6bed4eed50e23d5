"""The stages of a compile: one table for each kind of target, and the loop that runs them.

    plan -> nova -> linalg -> kernels -> buffers -> loops -> llvm -> ll -> object -> artifact

and for a device, from `buffers` on

    buffers -> device -> outlined -> nvvm -> ll -> ptx -> cubin -> artifact

`TargetCompile.run` is the loop: it runs, times, records and dumps each stage after the one that a
compile starts from. The text of every stage up to `ll` can replace the results of the stages before
it, so a compile resumes from an edited text. `cpu/backend.py` and `gpu/backend.py` are the two
kinds of `TargetCompile`.

Stages up to `ll` (`ptx`) have a textual form, which `Compiled.stages` keeps and `NOVA_DUMP=dir`
writes. Stages from `loops` (`device`) on depend on the target: with several targets each target has
its own, named `loops@x86_64-v4`. If a file is for CPUs and devices, the stages from `linalg` on run
for each of the two, and are named `linalg@cuda` for devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from nova.compiler.recorder import Recorder
from nova.compiler.signature import keep_signature
from nova.compiler.work_queue import WorkQueue
from nova.core.log import Progress
from nova.core.records import record
from nova.core.settings import Settings
from nova.core.targets import parse_target
from nova.errors import PipelineError
from nova.ir.bindings import ir
from nova.ir.context import make_context, parse_module, verify_module
from nova.ir.emit import emit_module
from nova.passes import pipelines
from nova.passes.base import Pass, run_verified_once
from nova.plan import Plan


@record
class Stage:
    """A row of the table: how the result of the stage before is lowered.

    An MLIR stage has `passes`. The others have code as text or bytes: `generate` names the method
    of `TargetCompile` that starts it. `is_shared` stages are the same for every target of a kind.
    A stage that is not `is_required` runs if it is the last one, or if `is_enabled`.
    """

    name: str
    passes: Callable[[Settings], list[Pass]] | None = None
    generate: str = ""
    is_shared: bool = False
    is_required: bool = True
    is_enabled: Callable[[Settings], bool] = lambda settings: False


def _table(*stages: Stage) -> dict[str, Stage]:
    return {stage.name: stage for stage in stages}


CPU_STAGES = _table(
    Stage("nova", lambda s: [], is_shared=True),
    Stage("linalg", lambda s: pipelines.nova_to_linalg(), is_shared=True),
    Stage(
        "kernels",
        lambda s: pipelines.linalg_to_kernels(s.serial_work, s.max_workspace),
        is_shared=True,
    ),
    Stage("buffers", lambda s: pipelines.kernels_to_buffers(s.max_workspace), is_shared=True),
    Stage(
        "loops",
        lambda s: pipelines.buffers_to_loops(
            s.target,
            s.tile_work,
            s.task_ns,
            s.schedules,
            s.max_workspace is None,
            s.cores,
            s.winograd,
        ),
    ),
    # Kernels are lowered in units. Each unit goes through the stages from here on separately, and
    # into the work queue for the last: LLVM runs while the next unit is lowered.
    Stage("llvm", lambda s: pipelines.loops_to_llvm(s.target, s.fast_math)),
    Stage("ll", generate="translate_units"),
    # The same code as `object`, for people to read.
    Stage("asm", generate="emit_assembly", is_required=False),
    Stage("object", generate="emit_objects"),
)
DEVICE_STAGES = _table(
    Stage("nova", lambda s: [], is_shared=True),
    Stage("linalg", lambda s: pipelines.nova_to_linalg(host_regions=True), is_shared=True),
    Stage(
        "kernels",
        lambda s: pipelines.linalg_to_device_kernels(s.serial_work, s.max_workspace),
        is_shared=True,
    ),
    Stage(
        "buffers", lambda s: pipelines.kernels_to_device_buffers(s.max_workspace), is_shared=True
    ),
    Stage(
        "device",
        lambda s: pipelines.buffers_to_device(
            s.target, s.tf32, s.gpu_gemm, s.gpu_attention, s.matmul_precision, s.launch
        ),
    ),
    Stage("outlined", lambda s: pipelines.device_to_outlined()),
    Stage("nvvm", lambda s: pipelines.outlined_to_nvvm(s.fast_math, s.launch, s.target)),
    Stage("ll", generate="translate_kernels"),
    Stage("ptx", generate="emit_ptx"),
    Stage("cubin", generate="emit_cubin", is_required=False, is_enabled=lambda s: s.cubin),
)
# The names of the stages whose result is a module, and of those that targets of a kind share.
MLIR_STAGES = tuple(stage.name for stage in CPU_STAGES.values() if stage.passes)
DEVICE_MLIR_STAGES = tuple(stage.name for stage in DEVICE_STAGES.values() if stage.passes)
SHARED_STAGES = tuple(stage.name for stage in CPU_STAGES.values() if stage.is_shared)


def stages_of(settings: Settings) -> dict[str, Stage]:
    """The table of stages for the target of `settings`."""
    return DEVICE_STAGES if parse_target(settings.target).is_device else CPU_STAGES


def stages_between(after: str, until: str | None, settings: Settings) -> list[Stage]:
    """The stages after `after`, up to and including `until` or the last one, for a target."""
    table = stages_of(settings)
    names = list(table)
    for name in (after, until or names[-1]):
        if name not in names:
            raise PipelineError(f"no stage {name!r}", hint=f"the stages are {', '.join(names)}")
    last = names[-1] if until is None else until
    return [
        stage
        for stage in list(table.values())[names.index(after) + 1 : names.index(last) + 1]
        if stage.is_required or stage.name == until or stage.is_enabled(settings)
    ]


def passes_between(after: str, until: str, settings: Settings) -> list[Pass]:
    """The passes of the MLIR stages after `after`, up to and including `until`."""
    stages = stages_between(after, until, settings)
    return [step for stage in stages if stage.passes for step in stage.passes(settings)]


@record
class CompileSession:
    """What all targets of a compile share.

    If there are `several` targets, the names of their stages have the target as a suffix. `host` is
    the architecture of the CPU that runs the file.
    """

    recorder: Recorder
    queue: WorkQueue
    bar: Progress
    several: bool = False
    host: str = ""

    def suffix(self, settings: Settings) -> str:
        """The suffix of the names of stages that are specific to one target."""
        return f"@{settings.target}" if self.several else ""


class StageClock:
    """The seconds of each stage. Stages nest: time in an inner one does not count for the outer."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = 0.0

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        before, self._inner = self._inner, 0.0
        started = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - started
            self.seconds[stage] = self.seconds.get(stage, 0.0) + elapsed - self._inner
            self._inner = before + elapsed


@record
class Code:
    """The result of a code stage: text, or the bytes of one or several files."""

    data: str | tuple[bytes, ...]
    seconds: float


class TargetCompile:
    """The compile of `module` for one target. `suffix` is appended to the names of its stages.

    This class runs MLIR stages. A subclass for a kind of target has the methods of the code stages
    in its table. They return the text, or a function that waits for the code if the work queue
    does the work: then `run` returns early, and the next target is lowered meanwhile. `wait`
    returns the code by stage.
    """

    def __init__(
        self,
        module: ir.Module | None,
        settings: Settings,
        session: CompileSession,
        suffix: str | None = None,
    ):
        self._module = module
        self.settings = settings
        self.session = session
        self.suffix = session.suffix(settings) if suffix is None else suffix
        self.clock = StageClock()
        self.until: str | None = None
        self._codes: dict[str, Code] = {}
        self._started: dict[str, Callable[[], Code]] = {}

    @property
    def module(self) -> ir.Module:
        assert self._module is not None  # a compile that resumes from `ll` has none
        return self._module

    def run(self, after: str, until: str | None = None) -> None:
        """Run the stages after `after` up to `until`, or all: the loop of the compiler."""
        self.until = until
        stages = stages_between(after, until, self.settings)
        late: list[Callable[[], None]] = []
        try:
            for stage, following in zip(stages, [*stages[1:], None], strict=False):
                record_text = self._run_stage(stage, len(late))
                if record_text is not None:
                    late.append(record_text)
                # Code stages do not change the module. Their work goes into the queue before the
                # text of the last MLIR stage, which is the longest one, is printed.
                if following is not None and following.passes is not None:
                    late.pop()()
        finally:
            for record_text in late:
                record_text()

    def _run_stage(self, stage: Stage, unrecorded: int) -> Callable[[], None] | None:
        """Run a stage. The function that is returned records its text; the queue has no text yet.

        The texts of as many stages before it as `unrecorded` are not recorded yet.
        """
        recorder, name = self.session.recorder, stage.name + self.suffix
        recorder.begin(name)
        code: str | Callable[[], Code] | None = None
        with self.clock.measure(stage.name):
            if stage.passes is not None:
                self.lower(stage.name, stage.passes(self.settings))
            else:
                code = getattr(self, stage.generate)()
        self.session.bar.advance(name, len(recorder.compact) + unrecorded - 1)
        seconds = self.clock.seconds[stage.name]
        if code is None:
            return partial(recorder.record_module, name, self.module, seconds)
        if isinstance(code, str):
            self._codes[stage.name] = Code(code, seconds)
            return partial(recorder.record, name, code, seconds)
        self._started[stage.name] = code
        return None

    def lower(self, stage: str, passes: list[Pass]) -> None:
        """Run the passes of an MLIR stage; subclasses read the tables of the program here."""
        run_verified_once(self.module, passes, self.part_ready)

    def part_ready(self) -> None:
        """A pass has finished a part of the module: a subclass may start to compile it."""

    def wait(self) -> dict[str, Code]:
        """Wait for the code that the queue generates, and record it; all code by stage."""
        for stage, wait_for_code in self._started.items():
            code = self._codes[stage] = wait_for_code()
            if isinstance(code.data, str):
                self.session.recorder.record(stage + self.suffix, code.data, code.seconds)
            else:
                size = sum(map(len, code.data))
                self.session.recorder.record_size(stage + self.suffix, size, code.seconds)
        self._started.clear()
        return self._codes


def run_stages(
    module: ir.Module,
    settings: Settings,
    recorder: Recorder,
    *,
    after: str = "nova",
    until: str | None = None,
) -> None:
    """Lower `module` from the stage `after` up to the MLIR stage `until`, or the last, in place."""
    last = DEVICE_MLIR_STAGES if parse_target(settings.target).is_device else MLIR_STAGES
    session = CompileSession(recorder, WorkQueue(1), Progress("", None))
    TargetCompile(module, settings, session).run(after, until or last[-1])


def start_from_plan(plan: Plan, recorder: Recorder, context: ir.Context | None = None) -> ir.Module:
    """The module at the `nova` stage, in `context` or a new one."""
    started = time.perf_counter()
    module = emit_module(plan, context or make_context())
    with module.context, ir.Location.unknown():
        keep_signature(module)
    verify_module(module)
    recorder.record_module("nova", module, time.perf_counter() - started)
    return module


def start_from_text(text: str, filename: str) -> ir.Module:
    """Parse a module from the text of any MLIR stage."""
    return parse_module(text, filename, make_context())
