"""A program that is a module and not a plan: to the contents of a file, and back from its text.

`nova.api.translate` calls `module_contents` with its compile result. `build_text` re-compiles the
text of a stage in a file, for another machine or with weights; `nova.api.compile` and
`Compiled.save` call it. The origin of such a text is unknown, so it is parsed and compiled in a
child process (`sandbox.py`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nova.artifact.cache.key import cache_key
from nova.artifact.tables import BufferSpec, Tables
from nova.artifact.write import FileSpec, write_artifact
from nova.compiler.driver import build, build_module, make_contents
from nova.compiler.recorder import Recorder, ReportingRecorder, apply_reports
from nova.compiler.result import CompileResult, TargetCode
from nova.compiler.sandbox import run_sandboxed
from nova.compiler.signature import ProgramSignature, read_signature
from nova.compiler.stages import CPU_STAGES, DEVICE_MLIR_STAGES, MLIR_STAGES, start_from_text
from nova.core.gc_pause import paused_gc
from nova.core.log import progress
from nova.core.settings import Settings
from nova.plan import parse_plan

# The stages whose text is a complete program: after them there are only kernels.
PROGRAM_STAGES = tuple(
    stage for stage in (*MLIR_STAGES, *DEVICE_MLIR_STAGES) if stage not in ("llvm", "nvvm")
)


def build_text(
    text: str, stage: str, settings: Sequence[Settings], key: Mapping[str, str], filename: str
) -> CompileResult:
    """Compile the text of a plan or of one of `PROGRAM_STAGES` for every target of `settings`."""
    recorder = Recorder(cache_key(key)[:12])
    with progress("compiling", len(CPU_STAGES)) as bar:
        contents = run_sandboxed(
            f"{__name__}:text_contents",
            *(text, stage, list(settings), dict(key), filename),
            where=filename,
            stage=stage,
            observe=apply_reports(recorder, bar),
        )
        started = time.perf_counter()
        contents = replace(contents, stages=recorder.texts)
        data = write_artifact(contents, recorder.packed_texts())
        recorder.record_size("artifact", len(data), time.perf_counter() - started)
    return CompileResult(data, recorder, contents)


@paused_gc()
def text_contents(
    text: str, stage: str, settings: Sequence[Settings], key: Mapping[str, str], filename: str
) -> FileSpec:
    """In the child: the contents of a file of the text, without the texts, which the caller has."""
    recorder = ReportingRecorder()
    if stage == "plan":
        (only,) = settings
        result = build(parse_plan(text, filename), only, key, recorder)
        return replace(result.contents, stages={})
    started = time.perf_counter()
    module = start_from_text(text, filename)
    signature = read_signature(module)
    recorder.record_module(stage, module, time.perf_counter() - started)
    codes = build_module(module, settings, recorder, after=stage, signature=signature)
    return module_contents(signature, codes, {}, stage, key)


def module_contents(
    signature: ProgramSignature,
    codes: Sequence[TargetCode],
    texts: Mapping[str, str],
    source: str,
    key: Mapping[str, str],
) -> FileSpec:
    """The contents of a program's file; `source` names the stage a re-compile starts from."""
    numbered = []
    for code in codes:
        tables = _number_outputs(code.variant.tables, signature.returned)
        numbered.append(replace(code, variant=replace(code.variant, tables=tables)))
    return make_contents(signature.args, signature.outputs, numbered, texts, source, key)


def _number_outputs(tables: Tables, returned: Sequence[int]) -> Tables:
    """Number all results; a result that aliases an argument has a number but no buffer."""

    def renumber(buffer: BufferSpec) -> BufferSpec:
        if buffer.kind == "output":
            return replace(buffer, value=returned[buffer.value])
        is_part = buffer.kind == "output_part"
        return replace(buffer, output=returned[buffer.output]) if is_part else buffer

    return replace(tables, buffers=tuple(map(renumber, tables.buffers)))
