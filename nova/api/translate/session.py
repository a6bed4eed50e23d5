"""The translation session: runs the stages from a source to the file or the requested stage.

`run_request` runs the stages of a checked `Request`; `run_request_sandboxed` does it in a child
process, for text that Nova did not write. `finish` writes the file from their results in the
caller's process, which has the values of weights. Called by `nova.translate`.
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
from nova.compiler.driver import build_module, emit_code
from nova.compiler.module import module_contents
from nova.compiler.recorder import Recorder, ReportingRecorder, apply_reports, module_text
from nova.compiler.sandbox import run_sandboxed
from nova.compiler.sandbox_child import release_later
from nova.compiler.signature import ProgramSignature, read_signature
from nova.compiler.stages import DEVICE_MLIR_STAGES, MLIR_STAGES, run_stages, stages_of
from nova.core.gc_pause import paused_gc
from nova.core.log import Progress
from nova.core.settings import Settings
from nova.core.sizes.text import parse_sizes
from nova.core.targets import parse_target
from nova.errors import PipelineError
from nova.frontends.import_mlir import import_program
from nova.frontends.source import Source, parse_source
from nova.frontends.specialize import ArgumentShape
from nova.ir.bindings import ir
from nova.ir.clone import copy_module
from nova.ir.walk import every_op
from nova.runtime.saving import Weights
from nova.runtime.weights import ParamValues, bytes_of, choose_values


@dataclass(frozen=True)
class Request:
    """A checked request: `params` are the names of the arguments that have values.

    `shapes` are texts of the shapes of example arguments (`print_sizes`), and their dtypes.
    """

    source: Source
    settings: list[Settings]
    emit: str
    start: str | None
    entry: str
    params: tuple[str, ...] = ()
    shapes: tuple[tuple[str, str | None], ...] | None = None


@dataclass(frozen=True)
class RequestResult:
    """The results of the stages: `data` of the requested stage, or the contents of a file."""

    data: bytes
    signature: ProgramSignature | None
    contents: FileSpec | None = None


def run_request_sandboxed(request: Request, recorder: Recorder, bar: Progress) -> RequestResult:
    """Run the stages in a child process: some texts make MLIR or LLVM abort, or never return."""
    first = request.start or ("bytecode" if request.source.is_bytecode else "import")
    seconds = knobs.get("text_seconds") + sum(entry.tune for entry in request.settings)
    result: RequestResult = run_sandboxed(
        f"{__name__}:run_request_in_child",
        request,
        where=request.source.name,
        stage=first,
        seconds=seconds,
        observe=apply_reports(recorder, bar, pack=request.emit == "so"),
    )
    return result


def run_request_in_child(request: Request) -> RequestResult:
    """In the child: run the stages; the caller has the texts already."""
    result = run_request(request, ReportingRecorder(), Progress("", None))
    if result.contents is None:
        return result
    return replace(result, contents=replace(result.contents, stages={}))


@paused_gc()
def run_request(request: Request, recorder: Recorder, bar: Progress) -> RequestResult:
    """Run the stages in this process."""
    source, emit, start = request.source, request.emit, request.start
    if start == "ll":
        recorder.record("ll", source.text, 0.0)
        return RequestResult(
            emit_code(source.text, request.settings[0], recorder, "ll", emit, bar), None
        )
    module, stage, signature = _begin(request, recorder)
    release_later(module)
    if start is None:
        _check_first(stage, request)
    settings = [_tune(module, stage, entry, bar) for entry in request.settings]
    if emit == "nova" and stage != "nova":
        following = ", ".join(list(stages_of(settings[0]))[1:])
        raise PipelineError(
            "the program is never in the nova dialect: it came in another one",
            hint=f"its stages are {following}",
        )
    if emit in MLIR_STAGES or emit in DEVICE_MLIR_STAGES:
        if emit != stage:
            run_stages(module, settings[0], recorder, after=stage, until=emit)
        return RequestResult(module_text(module).encode(), signature)
    # The text of kernels alone has no launch order: their object has no entry point.
    if emit not in ("so", "obj") or start in KERNELS_ONLY:
        return RequestResult(emit_code(module, settings[0], recorder, stage, emit, bar), signature)
    assert signature is not None
    first = list(recorder.compact)[-1]
    codes = build_module(module, settings, recorder, after=stage, bar=bar, signature=signature)
    contents = module_contents(signature, codes, recorder.texts, first, {})
    return RequestResult(b"", signature, contents)


def _tune(module: ir.Module, stage: str, settings: Settings, bar: Progress) -> Settings:
    """The settings with the fastest schedules, if the target is tuned."""
    if not settings.tune:
        return settings
    from nova.tuning import tune_settings  # loaded only on demand

    return tune_settings(copy_module(module), stage, settings, bar)


def _begin(request: Request, recorder: Recorder) -> tuple[ir.Module, str, ProgramSignature | None]:
    """The module of the source, its stage and its signature; only kernels have none."""
    started = time.perf_counter()
    source, start = request.source, request.start
    if start is not None and start != "nova":
        module = parse_source(source)
        signature = None
        if start in KERNELS_ONLY:
            _check_llvm(module, start)
        else:
            signature = read_signature(module)
        recorder.record_module(start, module, time.perf_counter() - started)
        return module, start, signature
    shapes: list[ArgumentShape] | None = None
    if request.shapes is not None:
        shapes = [(parse_sizes(text), dtype) for text, dtype in request.shapes]
    imported = import_program(source, request.entry, request.params, shapes)
    seconds = time.perf_counter() - started
    if imported.frontend != "nova":
        name = "source" if imported.frontend == "linalg" else imported.frontend
        recorder.record(name, imported.text, 0.0)
    recorder.record_module(imported.stage, imported.module, seconds)
    return imported.module, imported.stage, imported.signature


def _check_first(stage: str, request: Request) -> None:
    """Reject stages before the first stage of an imported program."""
    for settings in request.settings:
        stages = DEVICE_EMITS if parse_target(settings.target).is_device else HOST_EMITS
        if stage not in stages:
            raise PipelineError(
                f"the program launches device code, which {settings.target} cannot run",
                hint="give a target such as cuda:sm_90a, and no others",
            )
        if stage in SCHEDULED and settings.tune:
            raise PipelineError("tune is given to choose schedules, and launches have them")
        if request.emit != "nova" and stages.index(request.emit) < stages.index(stage):
            raise PipelineError(f"the program begins at {stage}, and {request.emit} is before it")


def prefers_persistent(result: RequestResult) -> bool:
    """Whether a persistent kernel is predicted to be faster, for all devices of a file."""
    from nova.runtime.launch_choice import choose_launch  # only with launch="auto"

    variants = () if result.contents is None else result.contents.variants
    choices = [
        choose_launch(variant.tables, variant.target.name)
        for variant in variants
        if variant.target.is_device and variant.sizes is None
    ]
    return bool(choices) and all(choice.launch == "persistent" for choice in choices)


def finish(
    result: RequestResult,
    request: Request,
    recorder: Recorder,
    values: Mapping[str, Any],
    carried: ParamValues | None,
) -> Translation:
    """The translation; if a file is requested, with the values of weights."""
    if result.contents is None:
        return Translation(result.data, request.emit, result.signature, recorder)
    assert result.signature is not None  # a file always has a signature
    if result.contents.devices:
        from nova.compiler.gpu.ptx_check import check_images  # only for device code

        check_images(result.contents.devices)
    started = time.perf_counter()
    weights, values_outside = _weights(result.signature, request.source.name, values, carried)
    contents = replace(result.contents, stages=recorder.texts, weights=weights)
    if request.emit == "so":
        data = write_artifact(contents, recorder.packed_texts())
    else:
        data = _object(contents)
    recorder.record_size("artifact", len(data), time.perf_counter() - started)
    return Translation(data, request.emit, result.signature, recorder, values_outside, contents)


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
    program_values: list[Any] = [] if carried is None else list(carried.host())
    program_values = [None] * (len(specs) - len(program_values)) + program_values
    if not values and (carried is None or carried.kind != "embedded"):
        if carried is None or not carried.is_complete:
            return WeightsSpec(), None
        return WeightsSpec(), ParamValues(specs, program_values, carried.kind)
    arrays = choose_values(specs, values, program_values, name)
    return dict(zip(params, map(bytes_of, arrays), strict=True)), None


def _object(contents: FileSpec) -> bytes:
    """The program as a relocatable object, with its entry point and the runtime."""
    from nova.artifact.elf.write_relocatable import write_relocatable  # loaded only on demand

    arch = contents.variants[0].target.arch
    image = write_artifact(replace(contents, entry=None, runtime=None, stages={}))
    runs = () if contents.runtime is None else (contents.entry, contents.runtime)
    return write_relocatable(image, [data for data in runs if data is not None], arch)


def _check_llvm(module: ir.Module, stage: str) -> None:
    """Reject ops of an earlier stage: MLIR's translation aborts the process on them."""
    tops = [op.operation for op in module.body.operations]
    dialects: tuple[str, ...] = ("llvm.",)
    if stage == "nvvm":  # the text of a device stage keeps the host code unchanged
        dialects = ("llvm.", "nvvm.", "gpu.module")
        tops = [op for op in tops if op.name == "gpu.module"]
        if not tops:
            raise PipelineError(
                "no gpu.module: the text is not of the stage nvvm",
                hint="start from the stage of the text",
            )
    for op in (nested for top in tops for nested in every_op(top)):
        if not op.name.startswith(dialects):
            raise PipelineError(
                f"{op.name} is not of the stage {stage}", hint="start from the stage of the text"
            )
