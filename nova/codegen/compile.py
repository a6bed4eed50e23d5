"""Plan to artifact: runs the stages, generates code, links, and puts it all into one file.

Called by `nova.compiler`. Knows nothing of caches, arguments or running.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nova import __version__, knobs
from nova.artifact.format import FORMAT_VERSION, Manifest, TensorSpec, write_artifact
from nova.artifact.key import cache_key
from nova.codegen.llvm import Unit, compile_objects
from nova.codegen.normalise import normalise
from nova.codegen.stages import MLIR_STAGES, Recorder, run_stages, start_from_plan
from nova.codegen.tables import Tables, read_tables
from nova.log import progress
from nova.mlir.bindings import ir, llvm
from nova.plan import Plan
from nova.settings import Settings
from nova.targets import Target, llvm_cpu, parse_target

_KERNELS_PER_OBJECT = 3
_UNROLLED_WORK = 8_000


@dataclass(frozen=True)
class Build:
    """A finished compile: the artifact's bytes and what every stage took."""

    data: bytes
    recorder: Recorder


def build(plan: Plan, settings: Settings, key: Mapping[str, str]) -> Build:
    """Compile a plan to an artifact. `key` is stored in it, for the cache to explain misses."""
    target = parse_target(settings.target)
    recorder = Recorder(cache_key(key)[:12])
    started = time.perf_counter()
    recorder.record("plan", str(plan), time.perf_counter() - started)
    found: list[Tables] = []
    with progress("compiling", len(MLIR_STAGES) + 2) as bar:
        bar.advance("nova", 0)
        module = start_from_plan(plan, recorder)

        def observe(stage: str, module: ir.Module) -> None:
            bar.advance(stage, len(recorder.texts) - 1)
            if stage == "loops":
                found.append(read_tables(module))

        run_stages(module, settings, recorder, observe=observe)
        tables = found[0]
        started = time.perf_counter()
        units = translate(module)
        text = "\n".join(unit.text for unit in units)
        recorder.record("ll", text, time.perf_counter() - started)
        bar.advance("object", len(recorder.texts) - 1)
        started = time.perf_counter()
        objects = compile_objects(units, target, knobs.get("threads"))
        recorder.record_size("object", sum(map(len, objects)), time.perf_counter() - started)
        started = time.perf_counter()
        data = write_artifact(
            _manifest(plan, target, tables, settings, key),
            objects,
            tables.constants,
            recorder.texts,
        )
        recorder.record_size("artifact", len(data), time.perf_counter() - started)
    return Build(data, recorder)


def translate(module: ir.Module) -> list[Unit]:
    """LLVM IR in units that can compile side by side: the tiny kernels, and shares of the rest."""
    operations = [op.operation for op in module.body.operations]
    # An entry point and its body stand next to each other and must stay together.
    pairs = [operations[i : i + 2] for i in range(0, len(operations), 2)]
    tiny = [p for p in pairs if _work(p) <= _UNROLLED_WORK]
    rest = sorted((p for p in pairs if _work(p) > _UNROLLED_WORK), key=_size, reverse=True)
    shares = max(1, min(knobs.get("threads"), len(rest) // _KERNELS_PER_OBJECT))
    units = [_unit(module, tiny, True)] if tiny else []
    units += [_unit(module, rest[i::shares], False) for i in range(shares) if rest]
    return units


def _unit(module: ir.Module, pairs: list[list[Any]], unroll: bool) -> Unit:
    with module.context, ir.Location.unknown():
        part = ir.Module.create()
        with ir.InsertionPoint(part.body):
            for pair in pairs:
                for op in pair:
                    op.clone()
        return Unit(normalise(llvm.translate_module_to_llvmir(part.operation)), unroll)


def _work(pair: list[Any]) -> int:
    return max(int(op.attributes["nova.work"].value) for op in pair if "nova.work" in op.attributes)


def _size(pair: list[Any]) -> int:
    return sum(len(block.operations) for op in pair for block in op.regions[0].blocks)


def _manifest(
    plan: Plan, target: Target, tables: Tables, settings: Settings, key: Mapping[str, str]
) -> Manifest:
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
    return Manifest(
        format_version=FORMAT_VERSION,
        producer=f"nova {__version__}",
        target=target.name,
        cpu=llvm_cpu(target),
        features=tuple(target.features),
        args=tuple(args),
        outputs=tuple(outputs),
        buffers=tables.buffers,
        kernels=tables.kernels,
        launches=tables.launches,
        workspace_size=tables.workspace_size,
        options={**settings.items(), "work": str(tables.work)},
        key=dict(key),
    )
