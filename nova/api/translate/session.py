"""The translation session: runs the stages from a source to the file or the requested stage.

`travel` runs the stages of a checked `Request`; `travel_sandboxed` does it in a child process, for
text that Nova did not write. `finish` writes the file from their results in the caller's process,
which has the values of weights. Called by `nova.translate`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nova import knobs
from nova.api.translate.request import DEVICE_EMITS, HOST_EMITS, KERNELS_ONLY, SCHEDULED
from nova.api.translate.result import Translation
from nova.artifact.manifest import WeightsSpec
from nova.artifact.write import FileSpec, write_artifact
from nova.compiler.cpu.llvm_text import compile_text
from nova.compiler.driver import build_module, single_unit
from nova.compiler.module import module_contents
from nova.compiler.sandbox import run_sandboxed
from nova.compiler.signature import ProgramSignature, read_signature
from nova.compiler.stages import (
    DEVICE_STAGES,
    MLIR_STAGES,
    Recorder,
    ReportingRecorder,
    follow,
    module_text,
    run_stages,
    stages_of,
)
from nova.core.log import Progress
from nova.core.settings import Settings
from nova.core.targets import parse_target
from nova.errors import PipelineError
from nova.frontends.program import import_program
from nova.frontends.source import Source, parse_source
from nova.frontends.specialize import ArgumentShape
from nova.ir.bindings import ir
from nova.ir.clone import copy_module
from nova.ir.walk import every_op
from nova.runtime.saving import Weights
from nova.runtime.weights import ParamValues, bytes_of, choose_values


@dataclass(frozen=True)
class Request:
    """A checked request: `params` are the names of the arguments that have values."""

    source: Source
    settings: list[Settings]
    emit: str
    start: str | None
    entry: str
    params: tuple[str, ...] = ()
    shapes: tuple[ArgumentShape, ...] | None = None


@dataclass(frozen=True)
class Arrival:
    """The results of the stages: `data` of the requested stage, or the contents of a file."""

    data: bytes
    signature: ProgramSignature | None
    contents: FileSpec | None = None


def travel(request: Request, recorder: Recorder, bar: Progress) -> Arrival:
    """Run the stages in this process."""
    return TranslateSession(
        request.source, list(request.settings), recorder, request.emit, bar
    ).travel(request)


def travel_sandboxed(request: Request, recorder: Recorder, bar: Progress) -> Arrival:
    """Run the stages in a child process: some texts make MLIR or LLVM abort, or never return."""
    begin = request.start or ("bytecode" if request.source.is_bytecode else "import")
    seconds = knobs.get("text_seconds") + sum(own.tune for own in request.settings)
    arrival: Arrival = run_sandboxed(
        f"{__name__}:travel_inside",
        request,
        where=request.source.name,
        stage=begin,
        seconds=seconds,
        observe=follow(recorder, bar),
    )
    return arrival


def travel_inside(request: Request) -> Arrival:
    """In the child: the same; the caller has the texts already."""
    arrival = travel(request, ReportingRecorder(), Progress("", None))
    if arrival.contents is None:
        return arrival
    return replace(arrival, contents=replace(arrival.contents, stages={}))


def finish(
    arrival: Arrival,
    request: Request,
    recorder: Recorder,
    values: Mapping[str, Any],
    carried: ParamValues | None,
) -> Translation:
    """The translation; if a file is requested, with the values of weights."""
    if arrival.contents is None:
        return Translation(arrival.data, request.emit, arrival.signature, recorder)
    assert arrival.signature is not None  # a file always has a signature
    if arrival.contents.devices:
        from nova.compiler.gpu.ptx_check import check_images  # only for device code

        check_images(arrival.contents.devices)
    started = time.perf_counter()
    weights, kept = _weights(arrival.signature, request.source.name, values, carried)
    contents = replace(arrival.contents, stages=recorder.texts, weights=weights)
    data = write_artifact(contents) if request.emit == "so" else _object(contents)
    recorder.record_size("artifact", len(data), time.perf_counter() - started)
    return Translation(data, request.emit, arrival.signature, recorder, kept, contents)


@dataclass(frozen=True)
class TranslateSession:
    """One translation from the source to the requested stage or file."""

    source: Source
    settings: list[Settings]
    recorder: Recorder
    emit: str
    bar: Progress

    def travel(self, request: Request) -> Arrival:
        start = request.start
        if start == "ll":
            return self._emit_code(self.source.text, None)
        module, stage, signature = self._begin(request)
        if start is None:
            self._check_begin(stage)
        self._tune(module, stage, self.bar)
        if self.emit in MLIR_STAGES or self.emit in DEVICE_STAGES:
            return self._stop_at(module, stage, signature)
        # The text of kernels alone has no launch order: their object has no entry point.
        if self.emit not in ("so", "obj") or start in KERNELS_ONLY:
            run_stages(module, self.settings[0], self.recorder, after=stage)
            return self._emit_code(self._llvm_text(module), signature)
        assert signature is not None
        source = list(self.recorder.compact)[-1]
        program = build_module(module, self.settings, self.recorder, after=stage, bar=self.bar)
        contents = module_contents(signature, program, self.recorder.texts, source, {})
        return Arrival(b"", signature, contents)

    def _tune(self, module: ir.Module, stage: str, bar: Progress) -> None:
        """Search schedules for the targets that are tuned."""
        for number, own in enumerate(self.settings):
            if own.tune:
                from nova.tuning import tune_settings  # loaded only on demand

                self.settings[number] = tune_settings(copy_module(module), stage, own, bar)

    def _begin(self, request: Request) -> tuple[ir.Module, str, Any]:
        started, start = time.perf_counter(), request.start
        if start is not None and start != "nova":
            module = parse_source(self.source)
            only_kernels = start in KERNELS_ONLY
            if only_kernels:
                _check_llvm(module, start)
            signature = None if only_kernels else read_signature(module)
            self.recorder.record_module(start, module, time.perf_counter() - started)
            return module, start, signature
        imported = import_program(self.source, request.entry, request.params, request.shapes)
        seconds = time.perf_counter() - started
        if imported.frontend != "nova":
            name = "source" if imported.frontend == "linalg" else imported.frontend
            self.recorder.record(name, imported.text, 0.0)
        self.recorder.record_module(imported.stage, imported.module, seconds)
        return imported.module, imported.stage, imported.signature

    def _check_begin(self, stage: str) -> None:
        """Reject stages before the first stage of an imported program."""
        for own in self.settings:
            stages = DEVICE_EMITS if parse_target(own.target).is_device else HOST_EMITS
            if stage not in stages:
                raise PipelineError(
                    f"the program launches device code, which {own.target} cannot run",
                    hint="give a target such as cuda:sm_90a, and no others",
                )
            if stage in SCHEDULED and own.tune:
                raise PipelineError("tune is given to choose schedules, and launches have them")
            if self.emit != "nova" and stages.index(self.emit) < stages.index(stage):
                raise PipelineError(f"the program begins at {stage}, and {self.emit} is before it")

    def _stop_at(self, module: ir.Module, stage: str, signature: Any) -> Arrival:
        if self.emit == "nova" and stage != "nova":
            behind = ", ".join(list(stages_of(self.settings[0]))[1:])
            raise PipelineError(
                "the program never is in the nova dialect: it came in another one",
                hint=f"the stages on its way are {behind}",
            )
        if self.emit != stage:
            run_stages(module, self.settings[0], self.recorder, after=stage, until=self.emit)
        return Arrival(module_text(module).encode(), signature)

    def _llvm_text(self, module: ir.Module) -> str:
        """The LLVM IR of the kernels for the one target."""
        if not parse_target(self.settings[0].target).is_device:
            return single_unit(module).text
        from nova.compiler.gpu.ptx import device_ir  # only for device code

        return device_ir(module)

    def _emit_code(self, text: str, signature: Any) -> Arrival:
        """The requested output of an LLVM IR text."""
        self.recorder.record("ll", text, 0.0)
        if self.emit == "ll":
            return Arrival(text.encode(), signature)
        started = time.perf_counter()
        self.recorder.begin(self.emit)
        data = compile_text(text, self.settings[0].target, self.emit)
        seconds = time.perf_counter() - started
        if self.emit == "obj":
            self.recorder.record_size("object", len(data), seconds)
        else:
            self.recorder.record(self.emit, data.decode(), seconds)
        return Arrival(data, signature)


def _weights(
    signature: ProgramSignature,
    name: str,
    values: Mapping[str, Any],
    carried: ParamValues | None,
) -> tuple[Weights, ParamValues | None]:
    """The values that go into the file, by the index of their param; and the other values.

    Inputs that became params come before the params of the program.
    """
    params = {i: spec for i, spec in enumerate(signature.args) if spec.role == "param"}
    specs = list(params.values())
    own: list[Any] = [] if carried is None else list(carried.host())
    own = [None] * (len(specs) - len(own)) + own
    if not values and (carried is None or carried.kind != "embedded"):
        if carried is None or not carried.is_complete:
            return WeightsSpec(), None
        return WeightsSpec(), ParamValues(specs, own, carried.kind)
    arrays = choose_values(specs, values, own, name)
    return dict(zip(params, map(bytes_of, arrays), strict=True)), None


def _object(contents: FileSpec) -> bytes:
    """The program as a relocatable object, with its entry point and the runtime."""
    from nova.artifact.elf_relocatable import write_relocatable  # loaded only on demand

    arch = contents.variants[0].target.arch
    image = write_artifact(replace(contents, entry=None, runtime=None, stages={}))
    runs = () if contents.runtime is None else (contents.entry, contents.runtime)
    return write_relocatable(image, [data for data in runs if data is not None], arch)


def _check_llvm(module: ir.Module, stage: str) -> None:
    """Reject ops of an earlier stage: MLIR's translation aborts the process on them."""
    tops = [op.operation for op in module.body.operations]
    known: tuple[str, ...] = ("llvm.",)
    if stage == "nvvm":  # the text of a device stage keeps the host code unchanged
        known = ("llvm.", "nvvm.", "gpu.module")
        tops = [op for op in tops if op.name == "gpu.module"]
        if not tops:
            raise PipelineError(
                "no gpu.module: the text is not of the stage nvvm",
                hint="start from the stage of the text",
            )
    for op in (inner for top in tops for inner in every_op(top)):
        if not op.name.startswith(known):
            raise PipelineError(
                f"{op.name} is not of the stage {stage}", hint="start from the stage of the text"
            )
