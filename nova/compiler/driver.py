"""Compiles a plan or a module to code: runs the stages and generates objects.

The objects of a plan go into one file. `nova.api.compile` calls `build`; it and
`nova.api.translate` call `build_module`, for one or several targets. The driver knows nothing of
caches, arguments or execution.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from nova import knobs
from nova.artifact.cache.key import cache_key
from nova.artifact.elf.runtime_object import runtime_object
from nova.artifact.format import Artifact
from nova.artifact.manifest import TensorSpec
from nova.artifact.write import FileSpec, write_artifact
from nova.core.constants import LEAST, find_bytes
from nova.core.gc_pause import paused_gc
from nova.core.log import Progress, progress
from nova.core.records import record
from nova.core.settings import Settings
from nova.core.targets import host_arch, parse_target
from nova.plan import Plan, print_plan

# The compiler, MLIR and LLVM: garbage collection while they load would free nothing.
with paused_gc():
    from nova.compiler.address_space import require_room
    from nova.compiler.cpu.backend import build_host
    from nova.compiler.cpu.entry import compile_entry
    from nova.compiler.cpu.llvm import Unit
    from nova.compiler.cpu.units import unit_text
    from nova.compiler.session import CompileSession, Program, TargetCode, beside
    from nova.compiler.stages import (
        SHARED_STAGES,
        Recorder,
        stages_of,
        start_from_plan,
    )
    from nova.ir.bindings import ir
    from nova.ir.clone import copy_module

_KINDS = ("cuda", "cpu")


@record
class CompileResult:
    """A finished compile: the bytes of the file, statistics of the stages, and the file's contents.

    `contents` is kept for `Compiled.save`, which may put weights into the file.
    """

    data: bytes
    recorder: Recorder
    contents: FileSpec


def share_bytes(built: CompileResult, artifact: Artifact) -> CompileResult:
    """The same result, with constants that are views of the file instead of copies."""
    section = artifact.section(".nova.const")
    built.recorder.constants.move_into(section)
    specs = {spec.target: spec for spec in artifact.manifest.variants}
    variants = []
    for variant in built.contents.variants:
        offset, size = specs[variant.target.name].constants
        own, unpacked = section[offset : offset + size], variant.unpacked
        if len(unpacked) >= LEAST and (found := find_bytes(section, memoryview(unpacked))) >= 0:
            unpacked = section[found : found + len(unpacked)]
        variants.append(replace(variant, constants=own, unpacked=unpacked))
    return replace(built, contents=replace(built.contents, variants=tuple(variants)))


@paused_gc()
def build(
    plan: Plan, settings: Settings, key: Mapping[str, str], recorder: Recorder | None = None
) -> CompileResult:
    """Compile a plan to an artifact. `key` is stored in it, so the cache can explain misses."""
    require_room()
    recorder = recorder or Recorder(cache_key(key)[:12])
    started = time.perf_counter()
    text = print_plan(plan, constants=recorder.constants)
    recorder.record("plan", text, time.perf_counter() - started)
    with (
        progress("compiling", len(stages_of(settings)) + 2) as bar,
        beside(knobs.get("threads")) as start,
    ):
        bar.advance("nova", 0)
        # LLVM first: its slow first calls in a process run concurrently with the stages.
        entry = start(partial(_prepare_entry, plan, settings))
        module = start_from_plan(plan, recorder)
        program = build_module(module, [settings], recorder, bar=bar)
        started = time.perf_counter()
        entry()
        contents = _contents(plan, program, recorder.texts, key)
        data = write_artifact(contents)
        recorder.record_size("artifact", len(data), time.perf_counter() - started)
    return CompileResult(data, recorder, contents)


@paused_gc()
def build_module(
    module: ir.Module,
    settings: Sequence[Settings],
    recorder: Recorder,
    *,
    after: str = "nova",
    bar: Progress | None = None,
) -> Program:
    """Compile a module at the stage `after` for every target of `settings`, which differ in that.

    Stages that all targets of a kind share run once. With several targets the later stages are
    recorded as `stage@target`. `module` is consumed.
    """
    require_room()
    steps = bar or Progress("compiling", None)
    groups = _by_kind(settings)
    host = host_arch(parse_target(one.target) for one in settings)
    waiting: dict[str, list[Callable[[], TargetCode]]] = {}
    with beside(knobs.get("threads")) as start:
        # Devices first: LLVM generates their code while CPU code is lowered and compiled.
        for number, kind in enumerate(sorted(groups, key=_KINDS.index)):
            own = module if number == len(groups) - 1 else copy_module(module)
            mark = f"@{kind}" if len(groups) > 1 and kind == "cuda" else ""
            session = CompileSession(
                recorder, steps, start, mark, several=len(settings) > 1, host=host
            )
            waiting[kind] = _begin_group(own, groups[kind], session, after)
        built = [finish() for kind in groups for finish in waiting[kind]]
    images = tuple(image for part in built for image in part.images)
    return Program(tuple(part.variant for part in built), images)


def _by_kind(settings: Sequence[Settings]) -> dict[str, list[Settings]]:
    """Settings for CPUs and settings for devices, which have different pipelines."""
    groups: dict[str, list[Settings]] = {}
    for own in settings:
        kind = "cuda" if parse_target(own.target).is_device else "cpu"
        groups.setdefault(kind, []).append(own)
    return groups


def _begin_group(
    module: ir.Module, settings: Sequence[Settings], session: CompileSession, after: str
) -> list[Callable[[], TargetCode]]:
    """Compile for targets of one kind; each result waits for its outstanding work."""
    if after in SHARED_STAGES:
        last = SHARED_STAGES[-1]
        session.run(module, settings[0], after, until=last, suffix=session.mark)
        after = last
    found: list[Callable[[], TargetCode]] = []
    for number, own in enumerate(settings):
        copy = module if number == len(settings) - 1 else copy_module(module)
        if parse_target(own.target).is_device:
            from nova.compiler.gpu.backend import begin_device  # only for devices

            found.append(begin_device(copy, own, session, after))
        else:
            found.append(partial(_same, build_host(copy, own, session, after)))
    return found


def _same(built: TargetCode) -> TargetCode:
    return built


def single_unit(module: ir.Module) -> Unit:
    """LLVM IR of all kernels in one unit, for people to read or to link elsewhere."""
    return Unit(unit_text(module), unroll=False)


def _prepare_entry(plan: Plan, settings: Settings) -> None:
    """Compile the entry point of a plan's file in advance, for `make_contents`."""
    arch = host_arch([parse_target(settings.target)])
    if runtime_object(arch) is not None:
        ranks = tuple(len(plan.type_of(result).shape) for result in plan.results)
        compile_entry(arch, len(plan.signature.arguments), ranks)


def _contents(
    plan: Plan, program: Program, texts: Mapping[str, str], key: Mapping[str, str]
) -> FileSpec:
    updated = {index for index, _ in plan.updates}
    inputs = len(plan.signature.inputs)
    args = [
        TensorSpec(
            a.name,
            a.type.shape,
            a.type.dtype.name,
            "input" if i < inputs else "param",
            donated=i - inputs in updated,
        )
        for i, a in enumerate(plan.signature.arguments)
    ]
    outputs = [
        TensorSpec(f"y{i}", t.shape, t.dtype.name, "output")
        for i, t in enumerate(plan.type_of(r) for r in plan.results)
    ]
    return make_contents(args, outputs, program, texts, "plan", key)


def make_contents(
    args: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    program: Program,
    texts: Mapping[str, str],
    source: str,
    key: Mapping[str, str],
) -> FileSpec:
    """The contents of a program's file; `source` names the stage a re-compile starts from.

    If there is a runtime for the architecture, the file gets its C entry points.
    """
    arch = host_arch(v.target for v in program.variants)
    runtime = runtime_object(arch)
    ranks = tuple(len(spec.shape) for spec in outputs)
    return FileSpec(
        variants=program.variants,
        devices=program.images,
        host=arch,
        args=tuple(args),
        outputs=tuple(outputs),
        stages=texts,
        source=source,
        key=dict(key),
        entry=None if runtime is None else compile_entry(arch, len(args), ranks),
        runtime=runtime,
    )
