"""Compiles a plan or a module for its targets, with one work queue for all of them.

`nova.api.compile` calls `build`, which also writes the file of a plan. `nova.api.translate` calls
`build_module` for one or several targets, and `emit_code` if it stops at LLVM IR or machine code.
The driver knows nothing of caches, arguments or execution.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from nova import knobs
from nova.artifact.cache.key import cache_key
from nova.artifact.elf.runtime_object import runtime_object
from nova.artifact.manifest import TensorSpec
from nova.artifact.specialized import Specialized, shift_constants
from nova.artifact.symbolic import SymbolicSizes
from nova.artifact.tables import ALIGN
from nova.artifact.write import FileSpec, write_artifact
from nova.core.constants import find_bytes
from nova.core.gc_pause import paused_gc
from nova.core.log import Progress, progress
from nova.core.settings import Settings
from nova.core.targets import host_arch, parse_target
from nova.plan import Plan, print_plan
from nova.plan.specialize import specialize_plan

# The compiler, MLIR and LLVM: garbage collection while they load would free nothing.
with paused_gc():
    from nova.compiler.address_space import require_room
    from nova.compiler.context_pool import reused_context
    from nova.compiler.cpu.backend import HostCompile
    from nova.compiler.cpu.entry import compile_entry
    from nova.compiler.recorder import Recorder
    from nova.compiler.result import CompileResult, TargetCode
    from nova.compiler.signature import ProgramSignature
    from nova.compiler.stages import (
        SHARED_STAGES,
        CompileSession,
        TargetCompile,
        stages_of,
        start_from_plan,
    )
    from nova.compiler.work_queue import WorkQueue
    from nova.ir.bindings import ir
    from nova.ir.clone import copy_module
    from nova.ir.linalg.attribute_cache import attribute_cache

if TYPE_CHECKING:
    from nova.compiler.gpu.backend import DeviceCompile


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
        progress("compiling", sum(s.is_required for s in stages_of(settings).values())) as bar,
        WorkQueue(knobs.get("threads")) as queue,
        reused_context(len(plan.steps)) as context,
    ):
        bar.advance("nova", 0)
        # LLVM first: its slow first calls in a process run concurrently with the stages.
        ranks = tuple(len(plan.type_of(result).shape) for result in plan.results)
        arguments = len(plan.signature.arguments)
        entry = queue.submit(partial(_prepare_entry, [settings], arguments, ranks))
        module = start_from_plan(plan, recorder, context)
        codes = _compile_targets(module, [settings], recorder, "nova", bar, queue)
        if settings.specialize:
            codes = tuple(_specialized(code, plan, settings, queue) for code in codes)
        started = time.perf_counter()
        entry.result()
        contents = _plan_contents(plan, codes, recorder.texts, key)
        data = write_artifact(contents, recorder.packed_texts())
        recorder.record_size("artifact", len(data), time.perf_counter() - started)
    return CompileResult(data, recorder, contents)


def _specialized(code: TargetCode, plan: Plan, settings: Settings, queue: WorkQueue) -> TargetCode:
    """The code of a program with symbolic sizes, with code for the sizes of `settings`."""
    variant = code.variant
    constants, parts, images = bytearray(variant.constants), [], []
    for sizes in settings.specialize:
        named = {dim.name: size for dim, size in zip(plan.dims, sizes, strict=True)}
        recorder = Recorder()  # the texts of the file are those of the program for all sizes
        module = start_from_plan(specialize_plan(plan, named), recorder)
        bar = Progress("compiling", None)
        [static] = _compile_targets(module, [settings], recorder, "nova", bar, queue)
        data = bytes(static.variant.constants)
        offset = find_bytes(memoryview(constants), memoryview(data)) if len(data) >= ALIGN else -1
        if offset < 0:
            constants = constants + bytes(-len(constants) % ALIGN)
            offset = len(constants)
            constants = constants + data
        part = Specialized(sizes, shift_constants(static.variant.tables, offset), ())
        tables = part.tables.renamed(part.suffix, part.device_suffix)
        parts.append(replace(part, tables=tables, objects=static.variant.objects))
        images.append((part.device_suffix, static.images))
    variant = replace(variant, constants=bytes(constants), specialized=tuple(parts))
    if not code.images:
        return replace(code, variant=variant)
    from nova.compiler.gpu.join_sizes import join_images  # only for devices

    return replace(code, variant=variant, images=join_images(code.images, images))


@paused_gc()
def build_module(
    module: ir.Module,
    settings: Sequence[Settings],
    recorder: Recorder,
    *,
    after: str = "nova",
    bar: Progress | None = None,
    signature: ProgramSignature | None = None,
) -> tuple[TargetCode, ...]:
    """Compile a module at the stage `after` for every target of `settings`, which differ in that.

    Stages that all targets of a kind share run once. With several targets the later stages are
    recorded as `stage@target`. `module` is consumed. With the `signature` of the program, the entry
    point of its file is compiled concurrently.
    """
    require_room()
    with WorkQueue(knobs.get("threads")) as queue:
        if signature is not None:
            ranks = tuple(len(spec.shape) for spec in signature.outputs)
            queue.submit(partial(_prepare_entry, settings, len(signature.args), ranks))
        return _compile_targets(
            module, settings, recorder, after, bar or Progress("compiling", None), queue
        )


def _compile_targets(
    module: ir.Module,
    settings: Sequence[Settings],
    recorder: Recorder,
    after: str,
    bar: Progress,
    queue: WorkQueue,
) -> tuple[TargetCode, ...]:
    host = host_arch(parse_target(entry.target) for entry in settings)
    session = CompileSession(recorder, queue, bar, several=len(settings) > 1, host=host)
    # Devices first: LLVM generates their code while CPU code is lowered and compiled.
    groups = [
        (suffix, group)
        for suffix, group in (
            ("@cuda", [s for s in settings if parse_target(s.target).is_device]),
            ("", [s for s in settings if not parse_target(s.target).is_device]),
        )
        if group
    ]
    compiles: dict[str, HostCompile | DeviceCompile] = {}
    with attribute_cache():  # stages have most attributes in common
        for number, (suffix, group) in enumerate(groups):
            start, copy = after, module if number == len(groups) - 1 else copy_module(module)
            if after in SHARED_STAGES:
                start = SHARED_STAGES[-1]
                shared = suffix if len(groups) > 1 else ""
                TargetCompile(copy, group[0], session, shared).run(after, start)
            for index, entry in enumerate(group):
                target_module = copy if index == len(group) - 1 else copy_module(copy)
                compiles[entry.target] = start_target(target_module, entry, session)
                compiles[entry.target].run(start)
    return tuple(compiles[entry.target].finish() for entry in settings)


def start_target(
    module: ir.Module | None, settings: Settings, session: CompileSession
) -> HostCompile | DeviceCompile:
    """The compile of `module` for the target of `settings`, before its first stage."""
    if not parse_target(settings.target).is_device:
        return HostCompile(module, settings, session)
    from nova.compiler.gpu.backend import DeviceCompile  # only for devices

    return DeviceCompile(module, settings, session)


@paused_gc()
def emit_code(
    source: ir.Module | str,
    settings: Settings,
    recorder: Recorder,
    after: str,
    emit: str,
    bar: Progress | None = None,
) -> bytes:
    """The code of the stage `emit`, of a module at the stage `after` or of LLVM IR.

    `obj` is one object with the code of all units.
    """
    if isinstance(source, str) and emit == after:
        return source.encode()
    until = "object" if emit == "obj" else emit
    with WorkQueue(knobs.get("threads")) as queue:
        session = CompileSession(recorder, queue, bar or Progress("compiling", None))
        target = start_target(None if isinstance(source, str) else source, settings, session)
        if isinstance(source, str):
            target.resume(source)
        target.run(after, until)
        data = target.wait()[until].data
    if isinstance(data, str):
        return data.encode()
    if len(data) == 1:
        return data[0]
    from nova.artifact.elf.write_relocatable import merge_objects  # loaded only on demand

    return merge_objects(data, target.target.arch)


def _prepare_entry(settings: Sequence[Settings], arguments: int, ranks: tuple[int, ...]) -> None:
    """Compile the entry point of a file in advance, for `make_contents`."""
    arch = host_arch(parse_target(entry.target) for entry in settings)
    if runtime_object(arch) is not None:
        compile_entry(arch, arguments, ranks)


def _plan_contents(
    plan: Plan, codes: Sequence[TargetCode], texts: Mapping[str, str], key: Mapping[str, str]
) -> FileSpec:
    updated = {index for index, _ in plan.updates}
    inputs = len(plan.signature.inputs)
    args = [
        TensorSpec(
            a.name,
            a.type.shape,
            a.type.dtype.name,
            a.role,
            donated=i - inputs in updated,
        )
        for i, a in enumerate(plan.signature.arguments)
    ]
    outputs = [
        TensorSpec(f"y{i}", t.shape, t.dtype.name, "output")
        for i, t in enumerate(plan.type_of(r) for r in plan.results)
    ]
    return make_contents(args, outputs, codes, texts, "plan", key)


def make_contents(
    args: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    codes: Sequence[TargetCode],
    texts: Mapping[str, str],
    source: str,
    key: Mapping[str, str],
) -> FileSpec:
    """The contents of a program's file; `source` names the stage a re-compile starts from.

    If there is a runtime for the architecture, the file gets its C entry points.
    """
    arch = host_arch(code.variant.target for code in codes)
    runtime = runtime_object(arch)
    ranks = tuple(len(spec.shape) for spec in outputs)
    sizes = next((c.variant.sizes for c in codes if c.variant.sizes is not None), None)
    if sizes is not None:
        args, outputs = ([_representative(s, sizes) for s in specs] for specs in (args, outputs))
    return FileSpec(
        variants=tuple(code.variant for code in codes),
        devices=tuple(image for code in codes for image in code.images),
        host=arch,
        args=tuple(args),
        outputs=tuple(outputs),
        stages=texts,
        source=source,
        key=dict(key),
        entry=None if runtime is None else compile_entry(arch, len(args), ranks),
        runtime=runtime,
    )


def _representative(spec: TensorSpec, sizes: SymbolicSizes) -> TensorSpec:
    """A tensor of the signature as the file describes it: with representative sizes."""
    return replace(spec, shape=tuple(map(sizes.representative, spec.shape)))
