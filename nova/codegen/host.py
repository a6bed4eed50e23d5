"""The host half of a compile: from a module at a stage up to `loops` to objects and tables.

`compile.py` calls `build_host`, once for each CPU target; `device.py` does for the kernels of a
device program that are pinned to the host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from nova import knobs
from nova.artifact.elf import prepare_link
from nova.artifact.elf_runtime import runtime_object
from nova.artifact.tables import Tables
from nova.artifact.write import Variant
from nova.codegen.llvm import Unit, compile_objects
from nova.codegen.road import Built, Road
from nova.codegen.stages import module_text, stages_of
from nova.codegen.tables import read_tables, read_unpacked
from nova.codegen.units import UnitLowering
from nova.mlir.bindings import ir
from nova.settings import Settings
from nova.targets import llvm_cpu, parse_target


def build_host(
    module: ir.Module, settings: Settings, road: Road, after: str, suffix: str | None = None
) -> Built:
    """Compile `module`, at the stage `after`, for the CPU that `settings` name.

    `suffix` is what is put behind the names of stages, where that is not the target.
    """
    target = parse_target(settings.target)
    recorder = road.recorder
    suffix = road.suffix(settings) if suffix is None else suffix
    if after != "loops":
        road.run(module, settings, after, until="loops", suffix=suffix)
    found: list[tuple[Tables, bytes, bytes]] = []
    started = time.perf_counter()

    def lowered() -> Iterator[Unit]:
        nonlocal started
        text = module_text(module) if after == "loops" else recorder.texts[f"loops{suffix}"]
        way = UnitLowering(module, text, stages_of(settings)["llvm"](settings))
        texts = []
        for unit in way.shared():
            texts.append(unit.text)
            yield unit
        # Read while LLVM is at work, and before `main` is gone.
        found.append((*read_tables(module), read_unpacked(module)))
        for unit in way.kernels():
            texts.append(unit.text)
            yield unit
        recorder.record(f"llvm{suffix}", module_text(module), way.lowering)
        recorder.record(f"ll{suffix}", "\n".join(texts), way.translating)
        road.advance(f"object{suffix}")
        started = time.perf_counter()
        prepare_link(runtime_object(target.arch))  # as LLVM is at work for a while

    objects = compile_objects(lowered(), target, knobs.get("threads"))
    size = sum(map(len, objects))
    recorder.record_size(f"object{suffix}", size, time.perf_counter() - started)
    tables, constants, unpacked = found[0]
    return Built(
        Variant(
            target, llvm_cpu(target), tuple(objects), tables, constants, settings.items(), unpacked
        )
    )
