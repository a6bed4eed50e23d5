"""Plan or module to code: runs the stages and generates objects; a plan's go into one file.

`build` is called by `nova.compiler`, `build_module` by it and by `nova.translation`, for one or
several targets. Knows nothing of caches, arguments or running.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nova import knobs
from nova.artifact.elf_runtime import runtime_object
from nova.artifact.key import cache_key
from nova.artifact.manifest import TensorSpec
from nova.artifact.tables import Tables
from nova.artifact.write import Contents, Variant, write_artifact
from nova.codegen.collection import paused_collection
from nova.codegen.entry import compile_entry
from nova.codegen.llvm import Unit, compile_objects
from nova.codegen.normalise import normalise
from nova.codegen.stages import (
    MLIR_STAGES,
    SHARED_STAGES,
    Recorder,
    copy_module,
    run_stages,
    start_from_plan,
)
from nova.codegen.tables import read_tables, read_unpacked
from nova.log import Progress, progress
from nova.mlir.bindings import ir, llvm
from nova.plan import Plan
from nova.schedules.shared import SCALAR_LOOPS, SHARED
from nova.settings import Settings
from nova.targets import llvm_cpu, parse_target

_KERNELS_PER_OBJECT = 3
# Not the number of threads: the same program gives the same bytes on every machine.
_MOST_OBJECTS = 8
_UNROLLED_WORK = 8_000


@dataclass(frozen=True)
class Build:
    """A finished compile: the file's bytes, what every stage took, and what the file is made of.

    `contents` is kept for `Compiled.save`, which may put weights into the file.
    """

    data: bytes
    recorder: Recorder
    contents: Contents


@paused_collection()
def build(plan: Plan, settings: Settings, key: Mapping[str, str]) -> Build:
    """Compile a plan to an artifact. `key` is stored in it, for the cache to explain misses."""
    recorder = Recorder(cache_key(key)[:12])
    started = time.perf_counter()
    recorder.record("plan", str(plan), time.perf_counter() - started)
    with progress("compiling", len(MLIR_STAGES) + 2) as bar:
        bar.advance("nova", 0)
        module = start_from_plan(plan, recorder)
        variants = build_module(module, [settings], recorder, bar=bar)
        started = time.perf_counter()
        contents = _contents(plan, variants, recorder.texts, key)
        data = write_artifact(contents)
        recorder.record_size("artifact", len(data), time.perf_counter() - started)
    return Build(data, recorder, contents)


@paused_collection()
def build_module(
    module: ir.Module,
    settings: Sequence[Settings],
    recorder: Recorder,
    *,
    after: str = "nova",
    bar: Progress | None = None,
) -> tuple[Variant, ...]:
    """Compile a module at the stage `after` for every target of `settings`, which differ in that.

    The stages that all targets share run once; with several targets those behind are recorded as
    `stage@target`. `module` is used up.
    """
    steps = bar or Progress("compiling", None)
    if after in SHARED_STAGES:
        run_stages(
            module,
            settings[0],
            recorder,
            after=after,
            until=SHARED_STAGES[-1],
            observe=lambda stage, _: steps.advance(stage, len(recorder.texts) - 1),
        )
        after = SHARED_STAGES[-1]
    variants = []
    for number, own in enumerate(settings):
        last = number == len(settings) - 1
        variants.append(
            _build_variant(
                module if last else copy_module(module),
                own,
                recorder,
                after,
                f"@{own.target}" if len(settings) > 1 else "",
                steps,
            )
        )
    return tuple(variants)


def _build_variant(
    module: ir.Module,
    settings: Settings,
    recorder: Recorder,
    after: str,
    suffix: str,
    bar: Progress,
) -> Variant:
    target = parse_target(settings.target)
    found: list[tuple[Tables, bytes, bytes]] = []

    def read(module: ir.Module) -> None:
        found.append((*read_tables(module), read_unpacked(module)))

    if after == "loops":
        read(module)

    def observe(stage: str, module: ir.Module) -> None:
        bar.advance(stage + suffix, len(recorder.texts) - 1)
        if stage == "loops":
            read(module)

    run_stages(module, settings, recorder, after=after, suffix=suffix, observe=observe)
    started = time.perf_counter()

    def translated() -> Iterator[Unit]:
        nonlocal started
        texts = []
        for unit in translate(module):
            texts.append(unit.text)
            yield unit
        recorder.record(f"ll{suffix}", "\n".join(texts), time.perf_counter() - started)
        bar.advance(f"object{suffix}", len(recorder.texts) - 1)
        started = time.perf_counter()

    objects = compile_objects(translated(), target, knobs.get("threads"))
    size = sum(map(len, objects))
    recorder.record_size(f"object{suffix}", size, time.perf_counter() - started)
    tables, constants, unpacked = found[0]
    return Variant(
        target, llvm_cpu(target), tuple(objects), tables, constants, settings.items(), unpacked
    )


def translate(module: ir.Module) -> Iterator[Unit]:
    """LLVM IR in units that can compile side by side, the largest first.

    Some have the functions that kernels share, one the tiny kernels, and others the rest: those
    with loops that LLVM is to vectorize, and those without.
    """
    operations = [op.operation for op in module.body.operations]
    shared = [op for op in operations if SHARED in op.attributes]
    code = [op for op in operations if SHARED not in op.attributes]
    # An entry point and its body stand next to each other and must stay together.
    pairs = [code[i : i + 2] for i in range(0, len(code), 2)]
    tiny = [p for p in pairs if _work(p) <= _UNROLLED_WORK]
    rest = [p for p in pairs if _work(p) > _UNROLLED_WORK]
    parts = [_Part(tiny, sum(map(_size, tiny)), unroll=True)] if tiny else []
    for functions in ([[op] for op in shared], rest):
        parts += _divide([p for p in functions if _has_scalar_loops(p)])
        vector = _divide([p for p in functions if not _has_scalar_loops(p)])
        parts += [replace(part, vectorize=False) for part in vector]
    # A long one at the end would keep one thread busy alone.
    for part in sorted(parts, key=lambda part: -part.size):
        yield _unit(module, part, shared)


@dataclass(frozen=True)
class _Part:
    """Functions that go into one unit, and how LLVM is to treat them."""

    pairs: list[list[Any]]
    size: int
    unroll: bool = False
    vectorize: bool = True


def _divide(pairs: list[list[Any]]) -> list[_Part]:
    """The pairs in parts of about the same size."""
    count = max(1, min(_MOST_OBJECTS, len(pairs) // _KERNELS_PER_OBJECT))
    members: list[list[list[Any]]] = [[] for _ in range(count)]
    sizes = [0] * count
    for size, pair in sorted(((_size(p), p) for p in pairs), key=lambda entry: -entry[0]):
        smallest = sizes.index(min(sizes))
        members[smallest].append(pair)
        sizes[smallest] += size
    return [_Part(*part) for part in zip(members, sizes, strict=True) if part[0]]


def single_unit(module: ir.Module) -> Unit:
    """LLVM IR of all kernels in one unit, for people to read or to link elsewhere."""
    return _unit(module, _Part([[op.operation for op in module.body.operations]], 0), ())


def _unit(module: ir.Module, part: _Part, shared: Sequence[Any]) -> Unit:
    """A unit of some functions; those of `shared` that it does not have are declared in it.

    All of them, called or not: to look for the calls takes half as long as the translation.
    """
    own = [op for pair in part.pairs for op in pair]
    elsewhere = [op for op in shared if op not in own]
    with module.context, ir.Location.unknown():
        cut = ir.Module.create()
        with ir.InsertionPoint(cut.body):
            for op in own:
                op.clone()
            for op in elsewhere:
                _declare(op)
        text = normalise(llvm.translate_module_to_llvmir(cut.operation))
    calls = tuple(op.attributes["sym_name"].value for op in elsewhere)
    return Unit(text, part.unroll, calls, part.vectorize)


def _declare(function: Any) -> None:
    """The declaration of a function that another unit has, at the insertion point."""
    kept = ("sym_name", "function_type", "visibility_", "arg_attrs", "passthrough")
    attributes = {name: function.attributes[name] for name in kept if name in function.attributes}
    attributes |= {"linkage": ir.Attribute.parse("#llvm.linkage<external>")}
    ir.Operation.create("llvm.func", attributes=attributes, regions=1)


def _has_scalar_loops(pair: list[Any]) -> bool:
    return any(SCALAR_LOOPS in op.attributes for op in pair)


def _work(pair: list[Any]) -> int:
    return max(int(op.attributes["nova.work"].value) for op in pair if "nova.work" in op.attributes)


def _size(pair: list[Any]) -> int:
    return sum(len(block.operations) for op in pair for block in op.regions[0].blocks)


def _contents(
    plan: Plan, variants: tuple[Variant, ...], texts: Mapping[str, str], key: Mapping[str, str]
) -> Contents:
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
    return make_contents(args, outputs, variants, texts, "plan", key)


def make_contents(
    args: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    variants: Sequence[Variant],
    texts: Mapping[str, str],
    source: str,
    key: Mapping[str, str],
) -> Contents:
    """What the file of a program holds; `source` names the stage a re-compile starts from.

    Where there is a runtime for the architecture, the file gets its C entry points.
    """
    arch = variants[0].target.arch
    runtime = runtime_object(arch)
    ranks = tuple(len(spec.shape) for spec in outputs)
    return Contents(
        variants=tuple(variants),
        args=tuple(args),
        outputs=tuple(outputs),
        stages=dict(texts),
        source=source,
        key=dict(key),
        entry=None if runtime is None else compile_entry(arch, len(args), ranks),
        runtime=runtime,
    )
